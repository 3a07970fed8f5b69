"""A proxy that fails on purpose, in front of a server that tells what it got."""

import asyncio
import contextlib
import threading
import time
from collections.abc import AsyncIterator, Callable

import pytest

from cometmq.testing import Direction, FaultProxy
from cometmq.testing.link import HELD_BYTES_MAX
from tests.broker.brokers import until

TO_SERVER, TO_CLIENT = Direction.TO_SERVER, Direction.TO_CLIENT
WAIT_S = 10.0
SOON_S = 0.05
"""How long a test looks on that nothing comes."""


class Peer(asyncio.Protocol):
    """One end of a connection; a server's answers by what it is given."""

    def __init__(self, answer: Callable[[bytes], bytes] | None = None) -> None:
        self.got = bytearray()
        self.ended = False
        self.error: Exception | None = None
        self._answer = answer
        self.transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport  # type: ignore[assignment]

    def data_received(self, data: bytes) -> None:
        self.got += data
        if self._answer is not None:
            self.transport.write(self._answer(data))

    def connection_lost(self, error: Exception | None) -> None:
        self.error = error
        self.ended = True

    async def receives(self, content: bytes) -> None:
        await until(lambda: len(self.got) >= len(content), WAIT_S)
        assert self.got == content

    async def hears_nothing(self) -> None:
        before = bytes(self.got)
        await asyncio.sleep(SOON_S)
        assert (bytes(self.got), self.ended) == (before, False)

    async def is_reset(self) -> None:
        await until(lambda: self.ended, WAIT_S)
        assert isinstance(self.error, ConnectionResetError)


class Room:
    """A server behind a proxy, and its clients."""

    def __init__(self, proxy: FaultProxy) -> None:
        self.proxy = proxy
        self.served: list[Peer] = []
        self.clients: list[Peer] = []

    async def client(self) -> tuple[Peer, Peer]:
        """A connected client, and the server's end of its connection."""
        count = len(self.served)
        client = await self.lone_client()
        await until(lambda: len(self.served) > count, WAIT_S)
        return client, self.served[count]

    async def lone_client(self) -> Peer:
        host, port = self.proxy.address.split(":")
        _, client = await asyncio.get_running_loop().create_connection(Peer, host, int(port))
        self.clients.append(client)
        return client


@contextlib.asynccontextmanager
async def room(answer: Callable[[bytes], bytes] | None = None) -> AsyncIterator[Room]:
    loop = asyncio.get_running_loop()
    served: list[Peer] = []

    def serve() -> Peer:
        served.append(Peer(answer))
        return served[-1]

    server = await loop.create_server(serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    async with FaultProxy(f"127.0.0.1:{port}") as proxy:
        made = Room(proxy)
        made.served = served
        yield made
    for peer in (*made.clients, *served):
        peer.transport.abort()
    server.close()
    await until(lambda: all(peer.ended for peer in (*made.clients, *served)), WAIT_S)
    await asyncio.sleep(0)


async def test_without_faults_everything_passes_and_is_counted() -> None:
    async with room(lambda data: data.upper()) as here:
        client, server = await here.client()
        client.transport.write(b"hello")
        await server.receives(b"hello")
        await client.receives(b"HELLO")
        other, _ = await here.client()
        other.transport.write(b"you")
        await other.receives(b"YOU")
        traffic = here.proxy.traffic
        assert (traffic.connections, here.proxy.connections) == (2, 2)
        assert (traffic.bytes_to_server, traffic.bytes_to_client) == (8, 8)
        assert (traffic.cuts, traffic.bytes_dropped) == (0, 0)


async def test_an_end_of_either_side_reaches_the_other_behind_its_last_bytes() -> None:
    async with room() as here:
        client, server = await here.client()
        client.transport.write(b"bye")
        client.transport.close()
        await server.receives(b"bye")
        await until(lambda: server.ended, WAIT_S)
        client, server = await here.client()
        server.transport.write(b"go")
        server.transport.close()
        await client.receives(b"go")
        await until(lambda: client.ended, WAIT_S)
        assert (client.error, server.error) == (None, None)
        await until(lambda: here.proxy.connections == 0, WAIT_S)


async def test_cut_resets_all_connections_and_lets_new_ones_in() -> None:
    async with room() as here:
        pairs = [await here.client() for _ in range(3)]
        here.proxy.cut()
        for client, server in pairs:
            await client.is_reset()
            await server.is_reset()
        client, server = await here.client()
        client.transport.write(b"again")
        await server.receives(b"again")
        assert here.proxy.traffic.cuts == 1


@pytest.mark.parametrize("direction", [TO_SERVER, TO_CLIENT])
@pytest.mark.parametrize("count", [0, 1, 7, 10])
async def test_cut_after_lets_exactly_so_many_bytes_pass(direction: Direction, count: int) -> None:
    async with room() as here:
        client, server = await here.client()
        bystander, _ = await here.client()
        sender, receiver = (client, server) if direction is TO_SERVER else (server, client)
        here.proxy.cut_after(count, direction)
        receiver.transport.write(b"the other way is open")
        await sender.receives(b"the other way is open")
        sender.transport.write(b"0123456789")
        await until(lambda: receiver.ended, WAIT_S)
        assert receiver.got == b"0123456789"[:count]
        await sender.is_reset()
        await bystander.is_reset()
        client, server = await here.client()
        server.transport.write(b"only once")
        await client.receives(b"only once")
        assert here.proxy.traffic.cuts == 1


async def test_cut_after_counts_over_several_writes() -> None:
    async with room() as here:
        client, server = await here.client()
        here.proxy.cut_after(5, TO_SERVER)
        client.transport.write(b"abc")
        await server.receives(b"abc")
        client.transport.write(b"def")
        await until(lambda: server.ended, WAIT_S)
        assert server.got == b"abcde"


async def test_a_stall_takes_connections_and_passes_nothing_until_it_ends() -> None:
    async with room() as here:
        client, server = await here.client()
        here.proxy.stall()
        late = await here.lone_client()
        client.transport.write(b"one")
        server.transport.write(b"two")
        late.transport.write(b"three")
        await server.hears_nothing()
        await client.hears_nothing()
        here.proxy.resume()
        await server.receives(b"one")
        await client.receives(b"two")
        await until(lambda: len(here.served) == 2, WAIT_S)
        await here.served[1].receives(b"three")


async def test_a_stall_of_one_direction_leaves_the_other_open() -> None:
    async with room(lambda data: data.upper()) as here:
        client, server = await here.client()
        here.proxy.stall(TO_CLIENT)
        client.transport.write(b"asked")
        await server.receives(b"asked")
        await client.hears_nothing()
        here.proxy.resume()
        await client.receives(b"ASKED")


async def test_an_end_during_a_stall_is_heard_afterwards() -> None:
    async with room() as here:
        client, server = await here.client()
        here.proxy.stall()
        client.transport.write(b"last words")
        client.transport.close()
        await server.hears_nothing()
        here.proxy.resume()
        await server.receives(b"last words")
        await until(lambda: server.ended, WAIT_S)


async def test_who_sends_into_a_stall_is_held_back() -> None:
    flood = bytes(16 * HELD_BYTES_MAX)
    async with room() as here:
        client, server = await here.client()
        here.proxy.stall()
        client.transport.write(flood)
        await server.hears_nothing()
        unsent = client.transport.get_write_buffer_size()
        assert unsent > len(flood) // 4  # The kernel has the rest, the proxy next to nothing.
        here.proxy.resume()
        await server.receives(flood)
        assert here.proxy.traffic.bytes_to_server == len(flood)


async def test_who_does_not_read_holds_back_who_sends() -> None:
    flood = bytes(32 * HELD_BYTES_MAX)
    async with room() as here:
        client, server = await here.client()
        client.transport.pause_reading()
        server.transport.write(flood)
        await asyncio.sleep(SOON_S)
        assert server.transport.get_write_buffer_size() > len(flood) // 4
        client.transport.resume_reading()
        await client.receives(flood)


async def test_a_delay_lets_everything_arrive_later_and_in_order() -> None:
    delay_s = 0.1
    async with room() as here:
        client, server = await here.client()
        here.proxy.delay(delay_s)
        begun = time.perf_counter()
        client.transport.write(b"1")
        await asyncio.sleep(delay_s / 2)
        here.proxy.delay(0)
        client.transport.write(b"2")
        client.transport.close()
        await server.receives(b"12")
        assert time.perf_counter() - begun >= delay_s
        await until(lambda: server.ended, WAIT_S)


async def test_what_is_delayed_is_bounded() -> None:
    flood = bytes(32 * HELD_BYTES_MAX)
    async with room() as here:
        client, server = await here.client()
        here.proxy.delay(3600)
        client.transport.write(flood)
        await server.hears_nothing()
        assert client.transport.get_write_buffer_size() > len(flood) // 4


async def test_dropping_one_direction_loses_it_and_its_end() -> None:
    async with room() as here:
        client, server = await here.client()
        here.proxy.drop(TO_SERVER)
        client.transport.write(b"lost")
        server.transport.write(b"heard")
        await client.receives(b"heard")
        await until(lambda: here.proxy.traffic.bytes_dropped == 4, WAIT_S)
        client.transport.close()
        await server.hears_nothing()
        assert server.got == b""


async def test_silenced_connections_never_speak_again_and_new_ones_do() -> None:
    async with room() as here:
        client, served = await here.client()
        here.proxy.silence()
        client.transport.write(b"lost")
        served.transport.write(b"gone")
        await until(lambda: here.proxy.traffic.bytes_dropped == 8, WAIT_S)
        client.transport.close()
        await served.hears_nothing()
        another, served_another = await here.client()
        another.transport.write(b"heard")
        await served_another.receives(b"heard")
        await served.hears_nothing()


async def test_after_dropping_broken_streams_are_reset_and_whole_ones_go_on() -> None:
    async with room() as here:
        broken, broken_server = await here.client()
        whole, whole_server = await here.client()
        here.proxy.drop()
        broken.transport.write(b"lost")
        await until(lambda: here.proxy.traffic.bytes_dropped == 4, WAIT_S)
        here.proxy.restore()
        await broken.is_reset()
        await broken_server.is_reset()
        whole.transport.write(b"fine")
        await whole_server.receives(b"fine")


async def test_refusing_lets_nobody_in_and_those_who_are_stay() -> None:
    async with room() as here:
        client, server = await here.client()
        address = here.proxy.address
        here.proxy.refuse()
        here.proxy.refuse()
        with pytest.raises(ConnectionRefusedError):
            await here.lone_client()
        client.transport.write(b"still here")
        await server.receives(b"still here")
        here.proxy.accept()
        here.proxy.accept()
        assert here.proxy.address == address
        client, server = await here.client()
        client.transport.write(b"back")
        await server.receives(b"back")


async def test_without_a_server_behind_it_clients_are_reset() -> None:
    async with room() as here:
        gone = FaultProxy(here.proxy.address)
        async with gone:
            here.proxy.refuse()
            host, port = gone.address.split(":")
            loop = asyncio.get_running_loop()
            _, client = await loop.create_connection(Peer, host, int(port))
            await client.is_reset()
            assert gone.connections == 0


async def test_one_connection_too_many_is_ended_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cometmq.testing.fault_proxy.LINKS_MAX", 1)
    async with room() as here:
        client, server = await here.client()
        refused = await here.lone_client()
        await until(lambda: refused.ended, WAIT_S)
        client.transport.write(b"mine")
        await server.receives(b"mine")
        assert len(here.served) == 1


async def test_faults_can_be_made_from_another_thread() -> None:
    async with room() as here:
        client, server = await here.client()
        thread = threading.Thread(target=here.proxy.cut)
        thread.start()
        await client.is_reset()
        await server.is_reset()
        await asyncio.to_thread(thread.join)


async def test_leaving_ends_everything_whatever_is_under_way() -> None:
    async with room() as here:
        client, server = await here.client()
        here.proxy.stall()
        client.transport.write(bytes(4 * HELD_BYTES_MAX))
        late = await here.lone_client()
        await here.proxy.stop()
        for peer in (client, server, late):
            await until(lambda peer=peer: peer.ended, WAIT_S)  # type: ignore[misc]
        assert here.proxy.connections == 0
        with pytest.raises(RuntimeError, match="not running"):
            _ = here.proxy.address
        here.proxy.start()


def test_a_target_that_is_no_address_is_refused() -> None:
    with pytest.raises(ValueError, match="host:port"):
        FaultProxy("localhost")
