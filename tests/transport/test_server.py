"""A server from its first connection to its end."""

import asyncio
import contextlib
import resource
import socket

import pytest

from cometmq.protocol.command import Command, Request, Response
from cometmq.transport import loop
from cometmq.transport.connection import Connection
from cometmq.transport.dial import connect, split_address
from cometmq.transport.errors import ConnectFailed
from cometmq.transport.server import Server

from .peers import ECHO, Peer, echo, framed, serving, until

LATER = 12
GRACE_S = 10.0


async def test_stopping_lets_answers_under_way_go_out() -> None:
    ready = asyncio.get_running_loop().create_future()

    async def later(_: Connection, __: Command) -> Response:
        await ready
        return Response(0, "in time")

    async with serving({LATER: later}) as (server, address):
        with await Peer.to(address) as peer:
            await peer.send(framed(LATER, 1))
            await until(lambda: any(connection.is_busy for connection in server.connections))
            stopping = asyncio.create_task(server.stop(GRACE_S))
            await asyncio.sleep(0)
            assert not stopping.done()
            ready.set_result(None)
            answers = await peer.rest()
            await stopping

    assert [answer.remark for answer in answers] == ["in time"]


async def test_stopping_waits_for_a_peer_that_still_reads() -> None:
    body = bytes(12_000_000)
    async with serving({ECHO: lambda *_: Response(body=body)}) as (server, address):
        with await Peer.to(address, receive_buffer_bytes=65536) as peer:
            await peer.send(framed(ECHO, 1))
            await until(lambda: any(connection.is_busy for connection in server.connections))
            stopping = asyncio.create_task(server.stop(GRACE_S))
            answers = await peer.rest()
            await stopping

    assert [len(answer.body) for answer in answers] == [len(body)]


async def test_stopping_does_not_wait_for_ever() -> None:
    large = Response(body=bytes(1_000_000))
    server = Server({ECHO: lambda *_: large, LATER: lambda *_: asyncio.Future[Response]()})
    address = await server.listen("127.0.0.1", 0)
    began = asyncio.get_running_loop().time()
    with await Peer.to(address, receive_buffer_bytes=4096) as deaf, await Peer.to(address) as held:
        await deaf.send(b"".join(framed(ECHO, number) for number in range(50)))
        await held.send(framed(LATER, 1))
        await until(lambda: sum(connection.is_busy for connection in server.connections) == 2)
        await server.stop(0.2)
        assert await held.rest() == []
        await until(lambda: not server.connections)

    assert asyncio.get_running_loop().time() - began < GRACE_S


async def test_a_stopped_server_takes_nobody() -> None:
    async with serving() as (server, address):
        await server.stop(0)
        with pytest.raises(ConnectFailed, match=f"cannot connect to {address}: "):
            await connect(str(address))


async def test_who_was_accepted_just_before_the_end_is_turned_away_behind_it() -> None:
    """The event loop takes connections first, and hands them over a moment later."""
    server = Server({ECHO: echo})
    await server.listen("127.0.0.1", 0)
    await server.stop(GRACE_S)
    ours, theirs = socket.socketpair()
    running = asyncio.get_running_loop()
    await running.connect_accepted_socket(server._connection, theirs)
    ours.setblocking(False)
    with contextlib.suppress(ConnectionResetError), ours:
        assert await asyncio.wait_for(running.sock_recv(ours, 1), GRACE_S) == b""
    await until(lambda: not server.connections)


async def test_connections_over_the_limit_are_refused_and_the_others_stay() -> None:
    async with serving(connections_max=3) as (server, address):
        taken = [await Peer.to(address) for _ in range(3)]
        await until(lambda: len(server.connections) == 3)
        refused = await Peer.to(address)
        assert await refused.rest() == []
        for peer in taken:
            await peer.send(framed(ECHO, 1))
            assert (await peer.answer()).opaque == 1

        taken[0].close()
        await until(lambda: len(server.connections) == 2)
        with await Peer.to(address) as next_one:
            await next_one.send(framed(ECHO, 2))
            assert (await next_one.answer()).opaque == 2
        for peer in [*taken[1:], refused]:
            peer.close()


async def test_connections_leave_two_thirds_of_the_files_to_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _: (24, 24))
    async with serving() as (server, address):
        taken = [await Peer.to(address) for _ in range(8)]
        await until(lambda: len(server.connections) == 8)
        with await Peer.to(address) as refused:
            assert await refused.rest() == []
        for peer in taken:
            peer.close()


async def test_one_server_listens_at_several_addresses() -> None:
    async with serving() as (server, main):
        fast = await server.listen("127.0.0.1", 0)
        assert fast.port != main.port
        for address in (main, fast):
            connection = await connect(str(address))
            answer = await connection.request(Request(ECHO, {}, b"hello"), GRACE_S)
            assert answer.body == b"hello"
            assert (connection.peer, connection.is_open) == (address, True)
            connection.close()


async def test_an_address_without_server_is_named() -> None:
    told = r"^cannot connect to 127\.0\.0\.1:1: Connection refused$"
    with pytest.raises(ConnectFailed, match=told):
        await connect("127.0.0.1:1")


async def test_a_host_that_nobody_knows_is_named() -> None:
    with pytest.raises(ConnectFailed, match=r"^cannot connect to nobody\.invalid:1: [^\[]+$"):
        await connect("nobody.invalid:1")


async def test_a_server_that_does_not_accept_is_given_up_in_time() -> None:
    with pytest.raises(ConnectFailed, match=r"cannot connect to 192\.0\.2\.1:9: "):
        await connect("192.0.2.1:9", timeout_s=0.05)


@pytest.mark.parametrize(
    ("address", "host", "port"),
    [
        ("127.0.0.1:9876", "127.0.0.1", 9876),
        (" broker-a.local:10911 ", "broker-a.local", 10911),
        ("[::1]:10911", "::1", 10911),
    ],
)
def test_addresses_are_split(address: str, host: str, port: int) -> None:
    assert split_address(address) == (host, port)


@pytest.mark.parametrize("address", ["", "host", "host:", ":9876", "host:port", "host:65536"])
def test_what_is_no_address_is_named(address: str) -> None:
    with pytest.raises(ValueError, match="is not an address: host:port is"):
        split_address(address)


def test_the_event_loop_is_uvloops_where_it_is_installed() -> None:
    uvloop = pytest.importorskip("uvloop")

    async def running() -> object:
        return asyncio.get_running_loop()

    assert isinstance(loop.run(running()), uvloop.Loop)


def test_without_uvloop_it_is_asyncios_own(monkeypatch: pytest.MonkeyPatch) -> None:
    async def serve_one() -> bytes:
        async with serving({ECHO: echo}) as (_, address):
            connection = await connect(str(address))
            answer = await connection.request(Request(ECHO, {}, b"hello"), GRACE_S)
            connection.close()
            return answer.body

    monkeypatch.setitem(__import__("sys").modules, "uvloop", None)
    assert loop.run(serve_one()) == b"hello"
