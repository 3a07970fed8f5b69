"""Peers that ask more than they read: what they can make a server hold is bounded."""

import asyncio

import pytest

from cometmq.protocol.command import Command, Request, Response
from cometmq.transport.connection import Connection
from cometmq.transport.dial import connect

from .peers import ECHO, Peer, framed, serving, until

KIB, MIB = 1024, 1024**2
ANSWER_BYTES = 10_000
REQUESTS = 3_000
OUTPUT_HIGH = 64 * KIB
SOCKET_BUFFERS = 8 * MIB
"""More than a kernel keeps for one loopback connection, and far less than what was asked for."""
SMALL_RECEIVE_BUFFER = 32 * KIB


class Counting:
    """A handler with large answers that counts what it was asked."""

    def __init__(self) -> None:
        self.handled = 0

    def __call__(self, _: Connection, __: Command) -> Response:
        self.handled += 1
        return Response(body=bytes(ANSWER_BYTES))


async def only_connection(connections: set[Connection]) -> Connection:
    await until(lambda: connections)
    (connection,) = connections
    return connection


def is_reading(connection: Connection) -> bool:
    assert connection._transport is not None
    return connection._transport.is_reading()


async def test_a_peer_that_does_not_read_is_not_listened_to_until_it_does() -> None:
    large = Counting()
    async with serving({ECHO: large}, output_bytes_high=OUTPUT_HIGH) as (server, address):
        with await Peer.to(address, receive_buffer_bytes=SMALL_RECEIVE_BUFFER) as peer:
            requests = b"".join(framed(ECHO, number) for number in range(REQUESTS))
            sending = asyncio.create_task(peer.send(requests))
            connection = await only_connection(server.connections)

            await until(lambda: not is_reading(connection))
            handled = large.handled
            assert handled * ANSWER_BYTES < OUTPUT_HIGH + SOCKET_BUFFERS
            assert connection._unsent() < OUTPUT_HIGH * 2 + ANSWER_BYTES
            assert connection.is_busy

            answers = await peer.answers(REQUESTS)
            await sending
            await until(lambda: not connection.is_busy)
            assert is_reading(connection)

    assert large.handled == REQUESTS
    assert [answer.opaque for answer in answers] == list(range(REQUESTS))


async def test_more_requests_of_a_peer_that_does_not_read_stay_outside() -> None:
    large = Counting()
    async with serving({ECHO: large}, output_bytes_high=OUTPUT_HIGH) as (server, address):
        with await Peer.to(address, receive_buffer_bytes=SMALL_RECEIVE_BUFFER) as peer:
            await peer.send(b"".join(framed(ECHO, number) for number in range(1000)))
            connection = await only_connection(server.connections)
            await until(lambda: not is_reading(connection))
            before = large.handled

            with pytest.raises(TimeoutError):
                # Until neither the server nor the buffers on the way take any more.
                await asyncio.wait_for(peer.send(bytes(64 * MIB)), 0.5)

            assert large.handled == before
            assert not is_reading(connection)


async def test_others_are_served_while_one_does_not_read() -> None:
    large = Counting()
    async with serving({ECHO: large}, output_bytes_high=OUTPUT_HIGH) as (server, address):
        with (
            await Peer.to(address, receive_buffer_bytes=SMALL_RECEIVE_BUFFER) as slow,
            await Peer.to(address) as quick,
        ):
            await slow.send(b"".join(framed(ECHO, number) for number in range(1000)))
            await until(lambda: any(not is_reading(each) for each in server.connections))
            for number in range(200):
                await quick.send(framed(ECHO, number))
                assert (await quick.answer()).opaque == number


async def test_a_peer_that_leaves_too_much_unread_is_cut_off() -> None:
    async with serving({}, output_bytes_high=OUTPUT_HIGH, output_bytes_max=MIB) as (
        server,
        address,
    ):
        with await Peer.to(address, receive_buffer_bytes=SMALL_RECEIVE_BUFFER):
            connection = await only_connection(server.connections)
            told = 0
            while server.connections:
                assert told < MIB + SOCKET_BUFFERS
                connection.tell(Request(40, {}, bytes(ANSWER_BYTES)))
                told += ANSWER_BYTES
                await asyncio.sleep(0)

    assert told > MIB
    assert not connection.is_open


async def test_only_so_many_requests_of_one_peer_are_at_work() -> None:
    released = asyncio.Event()
    at_work = peak = 0

    async def later(_: Connection, __: Command) -> Response:
        nonlocal at_work, peak
        at_work += 1
        peak = max(peak, at_work)
        await released.wait()
        at_work -= 1
        return Response()

    async with serving({ECHO: later}, working_max=10) as (server, address):
        with await Peer.to(address) as peer:
            await peer.send(b"".join(framed(ECHO, number) for number in range(1000)))
            connection = await only_connection(server.connections)
            await until(lambda: at_work == 10)
            assert not is_reading(connection)

            released.set()
            answers = await peer.answers(1000)
            await until(lambda: is_reading(connection))

    assert peak == 10
    assert sorted(answer.opaque for answer in answers) == list(range(1000))


async def test_two_ends_that_both_have_much_to_say_do_not_wait_for_each_other() -> None:
    """The client writes more than buffers hold, and so does the server in its answers."""
    body = bytes(4 * MIB)
    async with serving() as (_, address):
        connection = await connect(str(address))
        answers = await asyncio.gather(
            *(connection.request(Request(ECHO, {}, body), 20.0) for _ in range(10))
        )
        connection.close()

    assert [len(answer.body) for answer in answers] == [len(body)] * 10
