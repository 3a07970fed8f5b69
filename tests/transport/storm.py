"""Many connections that send mutants, and notice when a server does not hold out.

Each connection sends misfits in batches with an ordinary request at the end, and waits for the
answer to that one; so every misfit has been taken before the next batch. At last it may send a
wreck; then the server has to close, at the latest when the connection's other half is closed.
"""

import asyncio
import socket

from cometmq.protocol.command import FrameParser, Request, encode_request
from cometmq.protocol.host import Host

from .mutants import Mutants

BARRIER_OPAQUE = 2**31 - 1
BARRIER = b"".join(encode_request(Request(39_999), BARRIER_OPAQUE))
BATCH_MAX = 60
BATCHES_MAX = 4
WRECK_PROBABILITY = 0.8
RESET_PROBABILITY = 0.2
ANSWER_TIMEOUT_S = 60.0
ANSWER_BYTES_MAX = 1 << 30
RECEIVE_BYTES = 1 << 20


async def storm(address: Host, seed: int, frames: int, *, connections: int = 8) -> int:
    """Send so many mutants, always the same ones. Returns how many connections that took."""
    share = -(-frames // connections)
    made = await asyncio.gather(
        *(_blow(address, Mutants(seed * 1000 + number), share) for number in range(connections))
    )
    return sum(made)


async def _blow(address: Host, mutants: Mutants, frames: int) -> int:
    made = 0
    while frames > 0:
        frames -= await _one_connection(address, mutants, frames)
        made += 1
    return made


async def _one_connection(address: Host, mutants: Mutants, frames: int) -> int:
    """Returns how many mutants it sent, of as many as it may."""
    loop, parser, sent = asyncio.get_running_loop(), FrameParser(ANSWER_BYTES_MAX), 0
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as peer:
        peer.setblocking(False)
        # Reset instead of TIME_WAIT: the ports of one machine are soon used up otherwise.
        peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        async with asyncio.timeout(ANSWER_TIMEOUT_S):
            await loop.sock_connect(peer, tuple(address))
        for _ in range(1 + mutants.count(BATCHES_MAX - 1)):
            count = min(1 + mutants.count(BATCH_MAX - 1), frames - sent)
            await _send_batch(peer, parser, [mutants.misfit() for _ in range(count)])
            sent += count
        if mutants.chance(WRECK_PROBABILITY):
            await _send_wreck(peer, mutants)
            sent += 1
    return sent


async def _send_batch(peer: socket.socket, parser: FrameParser, misfits: list[bytes]) -> None:
    loop = asyncio.get_running_loop()
    sending = asyncio.ensure_future(loop.sock_sendall(peer, b"".join(misfits) + BARRIER))
    try:
        await _wait_for_barrier(peer, parser)
    finally:
        await sending


async def _wait_for_barrier(peer: socket.socket, parser: FrameParser) -> None:
    loop = asyncio.get_running_loop()
    async with asyncio.timeout(ANSWER_TIMEOUT_S):
        while data := await loop.sock_recv(peer, RECEIVE_BYTES):
            for command in parser.feed(data):
                if command.is_response and command.opaque == BARRIER_OPAQUE:
                    return
    raise AssertionError("the connection was closed although all its frames were whole")


async def _send_wreck(peer: socket.socket, mutants: Mutants) -> None:
    loop = asyncio.get_running_loop()
    try:
        await loop.sock_sendall(peer, mutants.wreck())
        if mutants.chance(RESET_PROBABILITY):
            return
        peer.shutdown(socket.SHUT_WR)
        async with asyncio.timeout(ANSWER_TIMEOUT_S):
            while await loop.sock_recv(peer, RECEIVE_BYTES):
                pass
    except ConnectionError:
        return  # It had already closed, which it may.
