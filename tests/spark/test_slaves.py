"""While a master is away its slave is read from, and what the slave lacks is not taken for lost."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from cometmq.broker.broker import Broker
from cometmq.protocol.message_queue import MessageQueue
from cometmq.spark.errors import ClusterAway, DataLost
from cometmq.spark.topic import patience
from cometmq.spark.topic.offsets import ByQueue, Progress, QueueRange
from cometmq.spark.topic.options import SourceOptions, read_options
from cometmq.spark.topic.overview import Overview
from cometmq.spark.topic.positions import beginnings, ends
from cometmq.spark.topic.stream import Stream
from tests.broker.brokers import context_of, until
from tests.replication.pairs import doomed, in_step, master, name_server, send_all, slave, store_of

LOOPS = ["asyncio"]
QUEUE = MessageQueue("orders", "broker-a", 0)
SENT = 1500
ACTING = pytest.mark.parametrize("acting", [False, True], ids=["as a slave", "as acting master"])


@pytest.fixture(autouse=True)
def _arrow() -> None:
    pytest.importorskip("pyarrow", reason="pyarrow is not installed: pip install 'cometmq[spark]'")


class Pair:
    """A master with several files and a slave that has only the last of them."""

    def __init__(
        self, root: Path, names: str, leader: Broker, follower: Broker, settings: dict[str, Any]
    ) -> None:
        self._root = root
        self._settings = settings
        self.names = names
        self.leader = leader
        self.slave_begin = store_of(follower).min_offset("orders", 0)
        self.end = store_of(leader).max_offset("orders", 0)

    async def master_back_after(self, seconds: float, work: "asyncio.Future[Any]") -> Any:
        """What the work gives, which begins without the master."""
        await asyncio.sleep(seconds)
        assert not work.done()
        async with master(self._root, namesrvAddr=self.names, **self._settings):
            return await work

    def options(self, *, streaming: bool = False, **more: str) -> SourceOptions:
        given = {"namesrvAddr": self.names, "topic": "orders", **more}
        return read_options(given, streaming=streaming)


@contextlib.asynccontextmanager
async def a_pair(root: Path, *, acting: bool = False) -> AsyncIterator[Pair]:
    settings: dict[str, Any] = {"enableSlaveActingMaster": acting}
    async with (
        name_server(root, support_acting_master=acting) as names,
        doomed(root, namesrvAddr=names, **settings) as leader,
    ):
        await send_all(leader, SENT, queues=1)
        async with slave(root, namesrvAddr=names, **settings) as follower:
            await in_step(leader, follower)
            await until(lambda: context_of(follower).topics.get("orders"))
            pair = Pair(root, names, leader, follower, settings)
            assert 0 < pair.slave_begin < pair.end == SENT
            yield pair


def in_thread(work: Callable[[], Any]) -> "asyncio.Future[Any]":
    return asyncio.ensure_future(asyncio.to_thread(work))


def offsets_read(options: SourceOptions, start: int, end: int) -> list[int]:
    from cometmq.spark.topic.ranges import read_range

    batches = read_range(options, QueueRange(QUEUE, start, end), ["queueOffset"])
    return [offset for batch in batches for offset in batch.column(0).to_pylist()]


# -- tasks ---------------------------------------------------------------------------------------


@ACTING
@pytest.mark.parametrize("fail", ["true", "false"])
async def test_a_task_waits_for_the_master_where_the_slave_has_nothing(
    tmp_path: Path, fail: str, acting: bool
) -> None:
    async with a_pair(tmp_path, acting=acting) as pair:
        await pair.leader.stop()
        options = pair.options(failOnDataLoss=fail)
        reading = in_thread(lambda: offsets_read(options, 0, SENT))
        assert await pair.master_back_after(2.0, reading) == list(range(SENT))


@ACTING
async def test_a_task_reads_what_the_slave_has_while_the_master_is_away(
    tmp_path: Path, acting: bool
) -> None:
    async with a_pair(tmp_path, acting=acting) as pair:
        await pair.leader.stop()
        found = await in_thread(lambda: offsets_read(pair.options(), pair.slave_begin, pair.end))
        assert found == list(range(pair.slave_begin, pair.end))


async def test_a_master_that_stays_away_is_named_and_nothing_is_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(patience, "PATIENCE_S", 0.5)
    async with a_pair(tmp_path) as pair:
        await pair.leader.stop()
        # Before the slave begins, and behind its end.
        for start, end in ((0, SENT), (pair.end, pair.end + 9)):
            options = pair.options(failOnDataLoss="false")
            with pytest.raises(ClusterAway, match="the master of broker broker-a is away, and its"):
                await in_thread(lambda: offsets_read(options, start, end))  # noqa: B023 - at once


async def test_a_topic_that_may_not_be_written_to_has_losses_all_the_same(tmp_path: Path) -> None:
    """Routes show its master as they show a slave that stands in for one."""
    from cometmq.client import Admin

    async with a_pair(tmp_path, acting=True) as pair:
        async with Admin(pair.names) as admin:
            await admin.topics.update("orders", permission=4)
            await admin.brokers.update_config({"fileReservedTime": 0})
            await admin.brokers.delete_expired_log()
            begin = await admin.offsets.min(QUEUE)
        assert 0 < begin < SENT
        with pytest.raises(DataLost, match=f"between 0 and {begin}"):
            await in_thread(lambda: offsets_read(pair.options(), 0, SENT))


# -- the driver ----------------------------------------------------------------------------------


def next_end(options: SourceOptions, before: Progress) -> ByQueue | None:
    stream = Stream(options)
    try:
        after = stream.next(before, everything=True)
    finally:
        stream.close()
    return None if after is None else after.ends


@ACTING
@pytest.mark.parametrize("place", [1, SENT + 100], ids=["before", "behind"])
async def test_a_stream_stays_at_a_place_that_the_slave_does_not_have(
    tmp_path: Path, place: int, acting: bool
) -> None:
    async with a_pair(tmp_path, acting=acting) as pair:
        options, before = pair.options(streaming=True), Progress({QUEUE: place}, {})
        await pair.leader.stop()
        assert await in_thread(lambda: next_end(options, before)) is None


async def test_a_stream_goes_on_with_what_the_slave_has(tmp_path: Path) -> None:
    async with a_pair(tmp_path) as pair:
        before = Progress({QUEUE: pair.slave_begin + 1}, {})
        await pair.leader.stop()
        found = await in_thread(lambda: next_end(pair.options(streaming=True), before))
        assert found == {QUEUE: pair.end}


@ACTING
async def test_where_a_read_begins_and_ends_is_for_the_master_to_say(
    tmp_path: Path, acting: bool
) -> None:
    def bounds() -> tuple[ByQueue, ByQueue]:
        with Overview(pair.options(queues="0")) as overview:
            queues = overview.queues()
        return beginnings(queues), ends(queues)

    async with a_pair(tmp_path, acting=acting) as pair:
        await pair.leader.stop()
        looking = in_thread(bounds)
        assert await pair.master_back_after(2.0, looking) == ({QUEUE: 0}, {QUEUE: SENT})
