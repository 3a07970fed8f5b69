"""Transactional rows when a broker that has shown some of them is not there to be asked."""

import asyncio
import itertools
from collections.abc import Iterator

import pyarrow as pa
import pytest

from cometmq.broker.context import Context
from cometmq.broker.transactions import open_halves, transactions
from cometmq.client.blocking import Admin
from cometmq.protocol.command import Command, Response
from cometmq.protocol.registration import BrokerFields, unregister_request
from cometmq.spark.errors import ClusterAway
from cometmq.spark.sink import shown
from cometmq.testing import BlockingEmbeddedBroker, EmbeddedBroker
from cometmq.transport.connection import Connection
from cometmq.transport.dial import connect

from .streaming import until
from .test_sink_tasks import batch, bodies_in, die_midway, halves_of, mark_of, stream_writer

BODIES = [f"{row:02d}" for row in range(20)]
AWAY_S, LOOKED_FOR_S = 3.0, 0.5
"""A broker is away for longer than what was committed is looked for, and for a second attempt."""


@pytest.fixture
def two() -> Iterator[BlockingEmbeddedBroker]:
    """Two brokers."""
    with EmbeddedBroker(in_memory=True, brokers=2) as broker:
        yield broker


def of_both_brokers() -> pa.RecordBatch:
    """Rows that are at one broker and the other by turns, where both are there."""
    return batch(BODIES, shardingKey=["a" if row % 2 else "b" for row in range(len(BODIES))])


def brokers_that_show(broker: BlockingEmbeddedBroker, topic: str) -> set[str]:
    with Admin(broker.namesrv) as admin:
        queues = admin.topics.stats(topic).queues
    return {queue.broker_name for queue, stats in queues.items() if stats.max_offset}


@pytest.mark.parametrize("is_done", [False, True])
def test_a_batch_that_runs_again_waits_for_all_brokers_that_have_shown_rows_of_it(
    two: BlockingEmbeddedBroker, monkeypatch: pytest.MonkeyPatch, *, is_done: bool
) -> None:
    """The second attempt sends everything to the broker that is left."""
    topic, rows = "one-is-away", of_both_brokers()
    two.create_topic(topic, 1)
    if is_done:
        stream_writer(two, topic).commit([halves_of(two, topic, rows)], 0)
    else:
        die_midway(two, topic, rows, monkeypatch)
    assert brokers_that_show(two, topic) == {"broker-a", "broker-b"}
    two.stop_broker(1)
    again = halves_of(two, topic, rows)
    assert {half.broker_name for half in again.halves} == {"broker-a"}
    for _ in range(2):  # What fails does not forget where rows may be.
        with pytest.raises(ClusterAway, match="no master is known now of broker-b, where it may"):
            stream_writer(two, topic, sendTimeout="1s").commit([again], 0)
    assert mark_of(two, topic) == (0, is_done)
    two.start_broker(1)
    stream_writer(two, topic).commit([again], 0)
    assert bodies_in(two, topic) == BODIES
    stream_writer(two, topic).commit([halves_of(two, topic, rows)], 0)
    assert bodies_in(two, topic) == BODIES, "what the first attempt has shown is known still"


def test_a_broker_that_has_no_rows_of_the_batch_is_not_waited_for(
    two: BlockingEmbeddedBroker,
) -> None:
    """It may be gone for good."""
    topic = "at-one-broker"
    two.create_topic(topic, 1)
    for number in range(2):  # The mark of the first one tells of both brokers.
        rows = of_both_brokers() if number == 0 else batch(["last"])
        stream_writer(two, topic).commit([halves_of(two, topic, rows, number)], number)
    two.stop_broker(1)
    stream_writer(two, topic, sendTimeout="1s").commit(
        [halves_of(two, topic, batch(["last"]), 1)], 1
    )
    assert bodies_in(two, topic)[-1:] == ["last"]


def test_a_commit_is_looked_for_at_its_own_broker_also_while_no_route_has_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its network failed: driver and NameServer lost it, and the driver is back first. It stores
    a message for every commit that it hears, as Apache RocketMQ's does."""
    topic, end, heard = "unlisted", transactions.Transactions.end, itertools.count(1)
    failures = set[asyncio.Task[None]]()

    async def be_unlisted(context: Context) -> None:
        config = context.config
        to_namesrv = await connect(config.name_servers)
        leaving = BrokerFields(config.name, str(context.address), config.cluster)
        await to_namesrv.request(unregister_request(leaving), 10)
        to_namesrv.close()
        await asyncio.sleep(AWAY_S)
        await context.announce()

    def failing(
        broker: transactions.Transactions, connection: Connection, command: Command
    ) -> Response | None:
        answer, context = end(broker, connection, command), broker._context
        if context.config.name == "broker-b" and next(heard) == 10:
            connection.abort()
            failures.add(asyncio.get_running_loop().create_task(be_unlisted(context)))
        return answer

    monkeypatch.setattr(open_halves.OpenHalves, "decide", lambda *_: None)
    monkeypatch.setattr(shown, "INDEX_LAG_S", LOOKED_FOR_S)
    monkeypatch.setattr(transactions.Transactions, "end", failing)
    with EmbeddedBroker(in_memory=True, brokers=2) as two:
        two.create_topic(topic, 1)
        sent = halves_of(two, topic, of_both_brokers())
        assert sum(half.broker_name == "broker-b" for half in sent.halves) == 10
        stream_writer(two, topic).commit([sent], 0)
        (failure,) = failures
        until(failure.done)
        failure.result()
        assert bodies_in(two, topic) == BODIES
