"""Connections on which nothing comes to an end are closed; those in use are not."""

import asyncio
import logging

import pytest

from cometmq.protocol.command import Request, Response

from .peers import ECHO, Peer, echo, framed, serving, until

IDLE_S = 0.8
PACE_S = 0.1
ROUNDS = 12
SOON_S = 5.0


async def test_a_silent_connection_is_closed_and_said_to_be(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    loop = asyncio.get_running_loop()
    async with serving(idle_s=IDLE_S) as (_, address):
        began = loop.time()
        with await Peer.to(address) as peer:
            assert await asyncio.wait_for(peer.rest(), SOON_S) == []

    assert loop.time() - began >= IDLE_S * 0.9
    assert any("idle for 0.8 s" in record.message for record in caplog.records)


async def test_a_connection_that_was_in_use_is_closed_once_it_falls_silent() -> None:
    async with serving(idle_s=IDLE_S) as (server, address):
        with await Peer.to(address) as peer:
            await peer.send(framed(ECHO, 1))
            assert len(await asyncio.wait_for(peer.rest(), SOON_S)) == 1
        assert server.connections == set()


async def test_a_peer_that_never_completes_a_frame_is_closed() -> None:
    """Byte by byte, it always seems to be about to say something."""
    frame = framed(ECHO, 1, bytes(100_000))

    async def dribble(peer: Peer) -> None:
        for byte in frame:
            await peer.send(bytes([byte]))
            await asyncio.sleep(PACE_S / 10)

    async with serving(idle_s=IDLE_S) as (_, address):
        with await Peer.to(address) as peer:
            dribbling = asyncio.create_task(dribble(peer))
            assert await asyncio.wait_for(peer.rest(), SOON_S) == []
            dribbling.cancel()
            await asyncio.gather(dribbling, return_exceptions=True)


async def test_a_peer_that_never_reads_is_closed_however_much_it_asks() -> None:
    large = Response(body=bytes(100_000))
    async with serving({ECHO: lambda *_: large}, idle_s=IDLE_S, output_bytes_high=65536) as (
        server,
        address,
    ):
        with await Peer.to(address, receive_buffer_bytes=4096) as peer:
            requests = b"".join(framed(ECHO, number) for number in range(20_000))
            sending = asyncio.create_task(peer.send(requests))
            await until(lambda: server.connections)
            await until(lambda: not server.connections, SOON_S)
            await asyncio.gather(sending, return_exceptions=True)


async def test_a_peer_that_asks_now_and_then_stays() -> None:
    async with serving(idle_s=IDLE_S) as (_, address):
        with await Peer.to(address) as peer:
            for number in range(ROUNDS):
                await peer.send(framed(ECHO, number))
                assert (await peer.answer()).opaque == number
                await asyncio.sleep(PACE_S)


async def test_a_peer_that_is_only_told_things_and_reads_them_stays() -> None:
    async with serving(idle_s=IDLE_S) as (server, address):
        with await Peer.to(address) as peer:
            await until(lambda: server.connections)
            (connection,) = server.connections
            for _ in range(ROUNDS):
                connection.tell(Request(40))
                assert (await peer.answer()).code == 40
                await asyncio.sleep(PACE_S)
            assert connection.is_open


async def test_a_large_answer_read_slowly_but_steadily_gets_through() -> None:
    async with serving({ECHO: echo}, idle_s=IDLE_S, output_bytes_high=65536) as (_, address):
        with await Peer.to(address) as peer:
            for number in range(ROUNDS):
                await peer.send(framed(ECHO, number, bytes(1_000_000)))
                await asyncio.sleep(PACE_S)
                assert (await peer.answer()).opaque == number
