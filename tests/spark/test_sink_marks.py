"""How far a query has come, as NameServers keep it: some may be away, some may be new."""

import contextlib
from collections.abc import AsyncIterator

import pytest

from cometmq.namesrv.config import NamesrvConfig
from cometmq.namesrv.server import NameServer
from cometmq.spark.errors import ClusterAway
from cometmq.spark.sink.commits import Batch, Commits, Mark
from cometmq.spark.sink.options import read_sink_options
from cometmq.testing.ports import LOOPBACK, ReservedPort

SEEN = "batch 3 of query q was begun before: what is shown already is not shown again"


class Namesrvs:
    """Several NameServers; each begins without a value, also where another one stood before."""

    def __init__(self, ports: list[int]) -> None:
        self._ports = ports
        self._running: dict[int, NameServer] = {}

    async def start(self, number: int) -> None:
        self._running[number] = NameServer(NamesrvConfig(port=self._ports[number]))
        await self._running[number].start()

    async def stop(self, number: int) -> None:
        await self._running.pop(number).stop()

    async def stop_all(self) -> None:
        for number in list(self._running):
            await self.stop(number)

    async def commit(self, batch: int) -> None:
        """Of nothing, so that there is no need of a broker."""
        async with self.commits() as commits:
            await commits.commit_batch(Batch("q", (), {}), batch)

    def commits(self, *numbers: int) -> Commits:
        """By all NameServers, or by these."""
        ports = [self._ports[number] for number in numbers] or self._ports
        addresses = ";".join(f"{LOOPBACK}:{port}" for port in ports)
        given = {"namesrvAddr": addresses, "topic": "t", "sendTimeout": "1s"}
        options = read_sink_options({**given, "deliveryGuarantee": "transactional"})
        return Commits(options, is_ordered=False)


@contextlib.asynccontextmanager
async def namesrvs(count: int) -> AsyncIterator[Namesrvs]:
    ports = [ReservedPort() for _ in range(count)]
    made = Namesrvs([port.number for port in ports])
    try:
        for number in range(count):
            await made.start(number)
        yield made
    finally:
        await made.stop_all()
        for port in ports:
            port.release()


async def test_of_three_name_servers_one_may_be_away(caplog: pytest.LogCaptureFixture) -> None:
    async with namesrvs(3) as servers:
        await servers.stop(0)
        await servers.commit(2)
        await servers.commit(3)
        assert SEEN not in caplog.text
        await servers.start(0)
        await servers.stop(1)
        await servers.commit(3)
        assert SEEN in caplog.text, "number 2 knows, number 0 does not"


@pytest.mark.parametrize("count", [2, 3])
@pytest.mark.parametrize("replaced", [0, 1])
async def test_one_that_was_replaced_does_not_make_a_batch_forgotten(
    caplog: pytest.LogCaptureFixture, count: int, replaced: int
) -> None:
    async with namesrvs(count) as servers:
        await servers.commit(3)
        await servers.stop(replaced)
        await servers.start(replaced)
        for _ in range(4):  # A client begins with any of them.
            caplog.clear()
            await servers.commit(3)
            assert SEEN in caplog.text


async def test_where_rows_are_shown_is_not_forgotten_when_one_has_missed_an_attempt() -> None:
    async with namesrvs(3) as servers:
        for numbers, mark in (
            ((0, 1), Mark(3, done=True, brokers={"broker-a"})),
            ((1, 2), Mark(3, done=False, brokers={"broker-a", "broker-b"})),
        ):
            async with servers.commits(*numbers) as commits:
                await commits._write("q", mark)
        await servers.stop(1)
        async with servers.commits() as commits:
            assert (await commits._read("q")).brokers == {"broker-a", "broker-b"}


@pytest.mark.parametrize(("count", "away"), [(2, 1), (3, 2)])
async def test_less_than_more_than_half_of_them_decide_nothing(count: int, away: int) -> None:
    async with namesrvs(count) as servers:
        for number in range(away):
            await servers.stop(number)
        with pytest.raises(ClusterAway, match=f"1 of {count} NameServers answer, and more than"):
            await servers.commit(3)
