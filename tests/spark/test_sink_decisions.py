"""The end of transactional writes: answers that are lost or odd, and brokers that are not ours."""

import asyncio
import itertools
import random
from collections.abc import Callable, Iterator, Sequence

import pyarrow as pa
import pytest

from cometmq.broker.transactions import open_halves, transactions
from cometmq.client.admin.reach import BrokerNode, Reach
from cometmq.client.cluster import cluster_at
from cometmq.client.errors import TopicNotFound, Unreachable
from cometmq.client.link import Link
from cometmq.client.received import ReceivedMessage
from cometmq.client.routes import Route, Routes
from cometmq.protocol.codes import ResponseCode
from cometmq.protocol.command import Command, Response
from cometmq.spark.errors import ClusterAway, NotSent
from cometmq.spark.sink import decisions, shown
from cometmq.spark.sink.halves import Half
from cometmq.spark.sink.ids import Origin
from cometmq.spark.sink.shown import Shown
from cometmq.spark.sink.writers import RocketMQStreamWriter, Written, write_rows
from cometmq.testing import BlockingEmbeddedBroker, EmbeddedBroker
from cometmq.transport.connection import Connection, Refusal

from .sending import options
from .test_sink_tasks import (
    TRANSACTIONAL,
    batch,
    bodies_in,
    halves_of,
    plan_of,
    stored,
    stream_writer,
)

Ended = Response | None


@pytest.fixture
def lossy() -> Iterator[BlockingEmbeddedBroker]:
    """A broker of which answers can be lost."""
    with EmbeddedBroker(in_memory=True, through_proxy=True) as broker:
        yield broker


class Told:
    """What brokers do with decisions: usually what they do, else what a test says."""

    def __init__(self) -> None:
        self.instead: Callable[[Callable[[], Ended]], Ended] = lambda usual: usual()


@pytest.fixture(autouse=True)
def told(monkeypatch: pytest.MonkeyPatch) -> Told:
    usual, made = transactions.Transactions.end, Told()

    def end(self: transactions.Transactions, connection: Connection, command: Command) -> Ended:
        return made.instead(lambda: usual(self, connection, command))

    monkeypatch.setattr(transactions.Transactions, "end", end)
    return made


def never_remembers(monkeypatch: pytest.MonkeyPatch) -> None:
    """As Apache RocketMQ's broker, which stores a message for every commit that it hears."""
    monkeypatch.setattr(open_halves.OpenHalves, "decide", lambda *_: None)


# -- answers that are lost -----------------------------------------------------------------------


def cut_at(broker: BlockingEmbeddedBroker, number: int) -> Callable[..., Ended]:
    """The connection ends behind so many decisions; they are stored, their answers are lost."""
    decided = itertools.count(1)

    def cut(usual: Callable[[], Ended]) -> Ended:
        answer = usual()
        if next(decided) == number:
            broker.proxy().cut()
        return answer

    return cut


@pytest.mark.parametrize("cut", [1, 100, 300])
def test_a_commit_whose_answer_was_lost_is_not_stored_twice(
    lossy: BlockingEmbeddedBroker, told: Told, monkeypatch: pytest.MonkeyPatch, cut: int
) -> None:
    never_remembers(monkeypatch)
    lossy.create_topic("once", 2)
    bodies = sorted(f"{row}" for row in range(600))
    sent = halves_of(lossy, "once", bodies)
    told.instead = cut_at(lossy, cut)
    stream_writer(lossy, "once").commit([sent], 0)
    assert bodies_in(lossy, "once") == bodies


def test_a_commit_that_never_arrived_is_told_again(
    lossy: BlockingEmbeddedBroker, told: Told
) -> None:
    lossy.create_topic("unheard", 1)
    sent = halves_of(lossy, "unheard", ["a", "b", "c"])
    heard = iter(range(100))

    def once_deaf(usual: Callable[[], Ended]) -> Ended:
        if next(heard):
            return usual()
        lossy.proxy().cut()
        return None

    told.instead = once_deaf
    stream_writer(lossy, "unheard").commit([sent], 0)
    assert bodies_in(lossy, "unheard") == ["a", "b", "c"]


def test_a_broker_that_does_not_answer_is_told_again_by_another_connection(
    lossy: BlockingEmbeddedBroker, told: Told, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(decisions, "ANSWER_TIMEOUT_S", 0.5)
    lossy.create_topic("silent", 1)
    sent = halves_of(lossy, "silent", ["a", "b", "c"])
    writer, abort = stream_writer(lossy, "silent"), Connection.abort
    heard, heard_at_abort = list[Ended](), list[int]()

    def once_silent(usual: Callable[[], Ended]) -> Ended:
        heard.append(None if not heard else usual())
        return None

    def noted(connection: Connection) -> None:
        heard_at_abort.append(len(heard))
        abort(connection)

    told.instead = once_silent
    monkeypatch.setattr(Connection, "abort", noted)
    writer.commit([sent], 0)
    assert 3 in heard_at_abort, "before it was told again"
    assert bodies_in(lossy, "silent") == ["a", "b", "c"]


def test_what_somebody_else_rolled_back_is_not_taken_for_committed(
    lossy: BlockingEmbeddedBroker, told: Told
) -> None:
    """Also when other commits were lost before it was told."""
    lossy.create_topic("taken-back", 1)
    sent = halves_of(lossy, "taken-back", [f"{row:04d}" for row in range(300)])
    last = sent.halves[-1:]
    stream_writer(lossy, "taken-back").abort([_only(sent, last)], 0)
    told.instead = cut_at(lossy, 10)
    with pytest.raises(NotSent, match="decided already"):
        stream_writer(lossy, "taken-back").commit([sent], 0)


def _only(sent: Written, halves: Sequence[Half]) -> Written:
    return Written(sent.origin, len(halves), halves, {})


# -- order ---------------------------------------------------------------------------------------


def test_rows_of_a_sharding_key_are_shown_in_order_by_brokers_that_decide_in_any(
    told: Told,
) -> None:
    """Apache RocketMQ's do so in many threads."""
    rng = random.Random(5)

    def later(usual: Callable[[], Ended]) -> Ended:
        asyncio.get_running_loop().call_later(rng.random() / 200, usual)
        return None

    told.instead = later
    with EmbeddedBroker(in_memory=True) as broker:
        broker.create_topic("threads", 4)
        bodies = [f"{row:04d}" for row in range(400)]
        rows = batch(bodies, shardingKey=[f"key {row % 10}" for row in range(400)])
        write_and_commit(broker, "threads", rows)
        assert bodies_in(broker, "threads") == bodies
        for queue in stored(broker, "threads").values():
            in_queue = [message.body for message in queue]
            assert in_queue == sorted(in_queue)


def write_and_commit(broker: BlockingEmbeddedBroker, topic: str, rows: pa.RecordBatch) -> None:
    given, columns = options(broker, topic=topic, **TRANSACTIONAL), rows.schema.names
    origin, plan = Origin(f"query of {topic}", 0, 0), plan_of(broker, topic)
    sent = write_rows(given, origin, columns, plan, iter([rows]))
    RocketMQStreamWriter(given, columns).commit([sent], 0)


# -- answers that are odd ------------------------------------------------------------------------


def refusing(code: ResponseCode, remark: str, times: int) -> Callable[..., Ended]:
    left = iter(range(times))

    def refuse(usual: Callable[[], Ended]) -> Ended:
        if next(left, None) is None:
            return usual()
        raise Refusal(code, remark)

    return refuse


@pytest.mark.parametrize(
    ("code", "remark"),
    [
        (ResponseCode.SYSTEM_BUSY, "[TIMEOUT_CLEAN_QUEUE]broker busy"),
        (ResponseCode.SERVICE_NOT_AVAILABLE, "service not available now"),
        (ResponseCode.SLAVE_NOT_AVAILABLE, "the broker is a slave, ask its master"),
        (ResponseCode.SLAVE_NOT_AVAILABLE, ""),
    ],
)
def test_a_broker_that_cannot_decide_now_is_told_again(
    told: Told, code: ResponseCode, remark: str
) -> None:
    with EmbeddedBroker(in_memory=True) as broker:
        broker.create_topic("busy", 1)
        sent = halves_of(broker, "busy", ["a", "b", "c"])
        told.instead = refusing(code, remark, 4)
        stream_writer(broker, "busy").commit([sent], 0)
        assert bodies_in(broker, "busy") == ["a", "b", "c"]


def test_a_topic_that_name_servers_do_not_know_for_a_moment_is_waited_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As while its only broker is started anew."""
    topic, refresh, looked = "for-a-moment", Routes.refresh, list[str]()

    async def unknown_at_first(routes: Routes, asked: str) -> Route:
        looked.extend([asked] if asked == topic else ())
        if asked == topic and len(looked) < 3:
            raise TopicNotFound("no route")
        return await refresh(routes, asked)

    with EmbeddedBroker(in_memory=True) as broker:
        broker.create_topic(topic, 1)
        sent, writer = halves_of(broker, topic, ["a"]), stream_writer(broker, topic)
        monkeypatch.setattr(Routes, "refresh", unknown_at_first)
        writer.commit([sent], 0)
        assert len(looked) >= 3
        assert bodies_in(broker, topic) == ["a"]


async def test_what_is_shown_is_looked_for_until_its_broker_can_be_asked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    half = Half("away", "broker-b", 0, 0, 0, "id", row_crc=0)
    told: list[Exception | str] = [Unreachable("no NameServer"), "a", "ab"]
    asked = list[str]()

    async def nodes(_: Reach) -> list[BrokerNode]:
        answer = told.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return [BrokerNode("c", f"broker-{name}", 0, f"{name}:1") for name in answer]

    async def found(
        _: Reach, at: list[BrokerNode], topic: str, unique_id: str
    ) -> Sequence[ReceivedMessage]:
        assert (topic, unique_id) == ("away", "id")
        asked.extend(node.name for node in at)
        return ()

    monkeypatch.setattr(Reach, "nodes", nodes)
    monkeypatch.setattr(shown, "found_by_id", found)
    looking = Shown(Link(cluster_at("127.0.0.1:1")), patience_s=30)
    assert await looking.among([half], ["broker-b"]) == set()
    assert asked == ["broker-b"]
    assert not told


def test_a_broker_that_was_out_of_reach_is_looked_for_anew(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its master may be another one now, also if none could be told before."""
    connection, away, asked = Link.connection, list[str](), list[str]()
    refresh = Routes.refresh

    async def unreachable_at_first(link: Link, address: str) -> Connection:
        if not away:
            away.append(address)
            asked.clear()
            raise Unreachable("connection refused")
        return await connection(link, address)

    async def noted(routes: Routes, topic: str) -> Route:
        asked.append(topic)
        return await refresh(routes, topic)

    with EmbeddedBroker(in_memory=True) as broker:
        broker.create_topic("anew", 1)
        sent, writer = halves_of(broker, "anew", ["a"]), stream_writer(broker, "anew")
        monkeypatch.setattr(Link, "connection", unreachable_at_first)
        monkeypatch.setattr(Routes, "refresh", noted)
        writer.commit([sent], 0)
        assert away
        assert asked[0] == "anew"
        assert bodies_in(broker, "anew") == ["a"]


def test_a_broker_that_never_decides_is_an_error_after_a_while(
    told: Told,
) -> None:
    with EmbeddedBroker(in_memory=True) as broker:
        broker.create_topic("ever-busy", 1)
        sent = halves_of(broker, "ever-busy", ["a"])
        told.instead = refusing(ResponseCode.SYSTEM_BUSY, "busy", 1000)
        with pytest.raises(ClusterAway, match=r"commit of 1 half messages .* tried for 1 s"):
            stream_writer(broker, "ever-busy", sendTimeout="1s").commit([sent], 0)


@pytest.mark.parametrize("code", [10, 11, 12])
def test_a_decision_that_is_stored_less_safely_counts_if_that_is_enough(
    told: Told, code: int
) -> None:
    def less_safe(usual: Callable[[], Ended]) -> Ended:
        usual()
        raise Refusal(ResponseCode(code), "1 of 2 replicas have it")

    with EmbeddedBroker(in_memory=True) as broker:
        broker.create_topic("less-safe", 1)
        first, second = (halves_of(broker, "less-safe", [body], n) for n, body in enumerate("ab"))
        told.instead = less_safe
        with pytest.raises(NotSent, match=f"with code {code}: 1 of 2 replicas"):
            stream_writer(broker, "less-safe").commit([first], 0)
        stream_writer(broker, "less-safe", acknowledge="stored").commit([second], 1)
        assert bodies_in(broker, "less-safe") == ["a", "b"]
