"""Dead letters go back to their topics, each once, whatever happens to who sends them."""

import asyncio
import importlib
import itertools
import math
import random
import threading
import time
from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from cometmq.client.admin.messages import Messages
from cometmq.client.blocking import Admin
from cometmq.client.link import Link
from cometmq.client.names import AnswerTimedOut, ConnectionLost, Message, ReceivedMessage
from cometmq.client.producer.packing import Packing
from cometmq.protocol.codes import RequestCode
from cometmq.protocol.flags import COMPRESSED
from cometmq.protocol.message_queue import MessageQueue
from cometmq.spark.dead_letters import desk
from cometmq.spark.dead_letters.desk import AlreadyRunning
from cometmq.spark.dead_letters.letters import FIRST_ID, FROM, Candidate, Letter, candidate_of
from cometmq.spark.dead_letters.redriving import OTHER_REASONS, REASONS_MAX, Redriven
from cometmq.spark.errors import BadOption, ClusterAway, SparkError
from cometmq.spark.pipelines.redrive import Choice, redrive
from cometmq.spark.topic import patience
from cometmq.testing import BlockingEmbeddedBroker, EmbeddedBroker

from .dead_letters import bury, messages_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


PIPELINE = importlib.import_module(redrive.__module__)
AWAY_S = 3.0
SYSTEM = "BenchmarkTest"
"""A topic of the system that takes messages."""


class Letters:
    """Dead letters of one group, and what became of them."""

    def __init__(self, spark: "SparkSession", broker: BlockingEmbeddedBroker, name: str) -> None:
        self.spark = spark
        self.broker = broker
        self.topic, self.group = f"{name}-topic", f"{name}-group"
        broker.create_topic(self.topic)

    def bury(self, count: int, **more: Any) -> list[str]:
        return bury(self.broker.namesrv, self.topic, self.group, count, **more)

    def redrive(self, *, choice: Choice = Choice(), **more: Any) -> Redriven:  # noqa: B008
        return redrive(
            self.broker.namesrv,
            self.group,
            choice=choice,
            spark=self.spark,
            **{"wait_s": 0, **more},
        )

    def copies(self, topic: str = "") -> list[ReceivedMessage]:
        found = messages_of(self.broker.namesrv, topic or self.topic)
        return [message for message in found if FROM in message.properties]

    def copied(self, topic: str = "") -> Counter[str]:
        """The ids of letters whose copies are there, each as often as it is there."""
        return Counter(copy.properties[FIRST_ID] for copy in self.copies(topic))


@pytest.fixture
def letters(
    spark: "SparkSession", broker: BlockingEmbeddedBroker, request: pytest.FixtureRequest
) -> Letters:
    return Letters(spark, broker, request.node.name.replace("_", "-")[5:60])


def test_letters_go_to_their_topics_as_they_were_sent(letters: Letters) -> None:
    def message(number: int) -> Message:
        return Message(
            letters.topic, b"body %d" % number * 2000, tags="paid", keys=("a", f"k{number}"),
            properties={"shop": "7"}, sharding_key="customer-1",
        )  # fmt: skip

    ids = letters.bury(3, message=message)
    told = letters.redrive()
    assert (told.letters, told.sent, told.found, told.refused) == (3, 3, 0, 0)
    assert told.by_topic == {letters.topic: 3}
    copies = letters.copies()
    assert {copy.body for copy in copies} == {b"body %d" % number * 2000 for number in range(3)}
    assert len({copy.queue for copy in copies}) == 1, "one sharding key, one queue"
    for copy in copies:
        assert copy.reconsume_times == 0
        assert copy.tags == "paid"
        assert copy.keys[0] == "a"
        assert copy.sharding_key == "customer-1"
        assert copy.properties["shop"] == "7"
        assert copy.properties[FIRST_ID] in ids
        assert copy.properties[FROM].startswith(f"%DLQ%{letters.group} broker-a:0 ")
        assert copy.message_id not in ids
        assert not {"RETRY_TOPIC", "ORIGIN_MESSAGE_ID", "DELAY"} & copy.properties.keys()


def test_what_is_redriven_is_not_redriven_again(letters: Letters) -> None:
    ids = letters.bury(5)
    letters.redrive()
    again = letters.redrive()
    assert (again.letters, again.sent) == (0, 0), "its group's offset is behind them"
    later = letters.bury(1)
    assert letters.redrive().sent == 1
    assert letters.copied() == Counter(ids + later)


def test_without_offsets_the_topic_itself_tells_what_is_there(letters: Letters) -> None:
    ids = letters.bury(5)
    letters.redrive()
    with Admin(letters.broker.namesrv) as admin:
        admin.offsets.commit(
            f"REDRIVE_{letters.group}",
            {MessageQueue(f"%DLQ%{letters.group}", "broker-a", 0): 0},
        )
    again = letters.redrive()
    assert (again.letters, again.found, again.sent) == (5, 5, 0)
    assert letters.copied() == Counter(ids)


def test_filters_choose_letters_and_others_stay_for_later(letters: Letters) -> None:
    def message(number: int) -> Message:
        return Message(
            letters.topic, b"%d" % number, tags="even" if number % 2 == 0 else "odd",
            keys=(f"k{number}", "all"), properties={"n": str(number)},
        )  # fmt: skip

    ids = letters.bury(8, message=message)
    assert letters.redrive(choice=Choice(tags=["even"], limit=3)).sent == 3
    assert letters.copied() == Counter([ids[0], ids[2], ids[4]])
    assert letters.redrive(choice=Choice(keys=["k1", "k'2"])).sent == 1
    assert letters.redrive(choice=Choice(where="properties['n'] >= '6'")).sent == 2
    told = letters.redrive()
    assert (told.letters, told.found, told.sent) == (6, 4, 2), "the first two are noted"
    assert letters.copied() == Counter(ids)


def test_a_limit_counts_what_is_new_so_that_the_next_run_goes_on(letters: Letters) -> None:
    def message(number: int) -> Message:
        return Message(letters.topic, b"%d" % number, tags="even" if number % 2 else "odd")

    ids = letters.bury(8, message=message)
    few = Choice(tags=["even"], limit=2)
    assert letters.redrive(choice=few).sent == 2
    again = letters.redrive(choice=few)
    assert (again.found, again.sent) == (2, 2), "the odd one in front keeps them from being noted"
    assert letters.copied() == Counter([ids[1], ids[3], ids[5], ids[7]])


def test_what_is_refused_counts_for_the_limit(letters: Letters) -> None:
    letters.bury(3)
    with Admin(letters.broker.namesrv) as admin:
        admin.topics.delete(letters.topic)
    told = letters.redrive(choice=Choice(limit=2))
    assert (told.letters, told.chosen, told.refused) == (2, 2, 2)


def test_times_choose_letters(letters: Letters) -> None:
    ids = letters.bury(3)
    letters.redrive(choice=Choice(until_ms=1))
    assert letters.copied() == Counter()
    dead = messages_of(letters.broker.namesrv, f"%DLQ%{letters.group}")
    between = Choice(since_ms=dead[1].store_timestamp, until_ms=dead[1].store_timestamp + 1)
    letters.redrive(choice=between)
    assert letters.copied()[ids[1]] == 1


def test_a_dry_run_tells_and_sends_nothing(letters: Letters) -> None:
    ids = letters.bury(3)
    told = letters.redrive(dry_run=True, choice=Choice(limit=2))
    assert (told.chosen, told.sent) == (2, 2)
    assert [sample.message_id for sample in told.samples] == ids[:2]
    assert told.samples[0].topic == letters.topic
    assert letters.copied() == Counter()
    assert letters.redrive().sent == 3


def test_all_letters_can_go_to_another_topic(letters: Letters) -> None:
    ids = letters.bury(2)
    other = f"{letters.topic}-other"
    letters.broker.create_topic(other, 1)
    assert letters.redrive(to=other).by_topic == {other: 2}
    assert letters.copied(other) == Counter(ids)
    assert letters.copied() == Counter()


def test_a_letter_whose_topic_is_gone_is_refused_and_stays(letters: Letters) -> None:
    letters.bury(2)
    with Admin(letters.broker.namesrv) as admin:
        admin.topics.delete(letters.topic)
    told = letters.redrive()
    assert (told.sent, told.refused) == (0, 2)
    assert list(told.reasons) == [
        f"there is no topic {letters.topic}: create it, or name another (--to)"
    ]
    letters.broker.create_topic(letters.topic)
    assert letters.redrive().sent == 2


def test_a_letter_of_a_system_topic_is_refused(letters: Letters) -> None:
    bury(letters.broker.namesrv, SYSTEM, letters.group, 1)
    told = letters.redrive()
    assert list(told.reasons) == [
        f"its first topic is said to be {SYSTEM}, the system's own: name another (--to)"
    ]
    assert letters.copied(SYSTEM) == Counter()
    assert letters.redrive(to=letters.topic).sent == 1


def test_a_letter_that_cannot_be_unpacked_is_refused_and_others_go_on(
    letters: Letters, monkeypatch: pytest.MonkeyPatch
) -> None:
    def packed(_: Packing, body: bytes) -> tuple[bytes, int]:
        return body, COMPRESSED if body == b"odd" else 0

    bodies = [b"first", b"odd", b"last"]
    with monkeypatch.context() as patched:
        patched.setattr(Packing, Packing.packed.__name__, packed)
        ids = letters.bury(3, message=lambda number: Message(letters.topic, bodies[number]))
    planned = letters.redrive(dry_run=True)
    assert (planned.sent, planned.refused) == (2, 1)
    assert [sample.message_id for sample in planned.samples] == [ids[0], ids[2]]
    for sent, found in ((2, 0), (0, 1)):
        told = letters.redrive()
        assert (told.sent, told.found, told.refused) == (sent, found, 1)
        (reason,) = told.reasons
        assert reason.startswith(
            f"%DLQ%{letters.group} broker-a:0 1: a compressed body cannot be unpacked"
        )

    def unaware(row: Any) -> Candidate:
        """As of a body that was too large to come along."""
        found = candidate_of(row)
        assert found.letter is not None
        return found._replace(letter=msgspec.structs.replace(found.letter, unreadable=""))

    monkeypatch.setattr(PIPELINE, candidate_of.__name__, unaware)
    (again,) = letters.redrive().reasons
    assert again.startswith(f"{reason}: ")
    assert letters.copied() == Counter([ids[0], ids[2]])


def test_a_sender_does_not_say_where_its_letters_go(letters: Letters) -> None:
    def message(_: int) -> Message:
        return Message(letters.topic, b"forged", properties={"DLQ_ORIGIN_TOPIC": other})

    other = f"{letters.topic}-other"
    letters.broker.create_topic(other)
    letters.bury(1, message=message)
    assert letters.redrive().by_topic == {letters.topic: 1}


def test_where_no_index_tells_what_is_there_nothing_is_sent(spark: "SparkSession") -> None:
    with EmbeddedBroker(settings={"messageIndexEnable": False}) as broker:
        letters = Letters(spark, broker, "unindexed")
        letters.bury(2)
        told = letters.redrive()
        assert (told.sent, told.refused) == (0, 2)
        assert list(told.reasons) == [
            f"broker-a has no index by key, which tells what {letters.topic} has already: set "
            "messageIndexEnable=true there and start it again, or name another topic (--to)"
        ]
        assert letters.copied() == Counter()


def test_a_long_queue_comes_in_parts_and_in_order(
    letters: Letters, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(PIPELINE, "LETTERS_AT_ONCE", 3)
    ids = letters.bury(10)
    jobs = letters.spark.sparkContext.statusTracker()
    before = len(jobs.getJobIdsForGroup(None))
    told = letters.redrive(dry_run=True)
    assert [sample.message_id for sample in told.samples] == ids
    assert len(jobs.getJobIdsForGroup(None)) - before == 4


def test_large_bodies_do_not_go_through_the_driver(
    letters: Letters, monkeypatch: pytest.MonkeyPatch
) -> None:
    def read(row: Any) -> Candidate:
        found = candidate_of(row)
        assert found.letter is not None
        came.append(found.letter.body)
        return found

    came: list[bytes | None] = []
    monkeypatch.setattr(PIPELINE, candidate_of.__name__, read)
    bodies = [b"small", random.randbytes(200_000), b"small, too"]
    letters.bury(3, message=lambda number: Message(letters.topic, bodies[number]))
    told = letters.redrive(dry_run=True)
    assert [sample.bytes for sample in told.samples] == [5, 200_000, 10]
    assert letters.redrive().sent == 3
    assert came == [bodies[0], None, bodies[2]] * 2
    assert sorted(copy.body for copy in letters.copies()) == sorted(bodies)


def test_what_cannot_be_is_refused_by_its_name(letters: Letters) -> None:
    with pytest.raises(BadOption, match="there is no topic %DLQ%"):
        letters.redrive()
    letters.bury(1)
    refused: list[tuple[dict[str, Any], str]] = [
        ({"to": "%DLQ%x"}, "is no topic that messages are sent to"),
        ({"to": "no-such-topic"}, "there is no topic no-such-topic: create it"),
        *(({"rate": rate}, "rate: more than 0") for rate in (0, math.inf, math.nan)),
        ({"choice": Choice(limit=0)}, "limit: 1 or more"),
        ({"options": {"topic": "x"}}, "topic: a redrive takes accessKey"),
        ({"choice": Choice(where="nonsense > 1")}, "nonsense"),
    ]
    for wrong, said in refused:
        with pytest.raises(SparkError, match=said):
            letters.redrive(**wrong)
    assert letters.copied() == Counter()


def test_only_one_redrive_of_a_group_is_at_work(letters: Letters) -> None:
    ids = letters.bury(40)
    begun = threading.Event()

    def first() -> None:
        letters.redrive(rate=20, on_progress=lambda _: begun.set())

    thread = threading.Thread(target=first)
    thread.start()
    assert begun.wait(60)
    with pytest.raises(AlreadyRunning, match="another redrive of %DLQ%"):
        letters.redrive()
    thread.join(60)
    assert letters.copied() == Counter(ids)


def test_who_waits_goes_on_where_the_other_ended(letters: Letters) -> None:
    ids = letters.bury(30)
    begun = threading.Event()
    told: list[Redriven] = []

    def first() -> None:
        told.append(letters.redrive(rate=15, on_progress=lambda _: begun.set()))

    thread = threading.Thread(target=first)
    thread.start()
    assert begun.wait(60)
    waited: list[bool] = []
    told.append(letters.redrive(wait_s=60, on_wait=lambda: waited.append(True)))
    thread.join(60)
    assert waited == [True]
    assert sum(one.sent for one in told) == 30
    assert letters.copied() == Counter(ids)


@pytest.mark.parametrize("look", [1, 2])
def test_who_was_held_up_looks_again_before_it_sends(
    spark: "SparkSession", monkeypatch: pytest.MonkeyPatch, look: int
) -> None:
    """Its broker was started anew and has forgotten its locks; another redrive came and went."""
    monkeypatch.setattr(desk, "SETTLE_S", 0.5)
    found, looks, others = desk.RedriveDesk.found, itertools.count(1), list[Redriven]()
    with EmbeddedBroker() as broker:
        letters = Letters(spark, broker, "held-up")
        ids = letters.bury(20)

        async def held_up(self: Any, copies: Any) -> set[str]:
            there = await found(self, copies)
            if next(looks) == look:
                broker.restart()
                others.append(letters.redrive())
            return there

        monkeypatch.setattr(desk.RedriveDesk, "found", held_up)
        letters.redrive()
        assert [one.sent for one in others] == [20]
        assert letters.copied() == Counter(ids)


def test_a_rate_is_kept(letters: Letters) -> None:
    letters.bury(20)
    windows: list[float] = []
    letters.redrive(rate=10, on_progress=lambda _: windows.append(time.monotonic()))
    assert len(windows) == 2
    assert windows[1] - windows[0] >= 0.9


@pytest.fixture
def proxied(spark: "SparkSession") -> Iterator[Letters]:
    with EmbeddedBroker(through_proxy=True) as broker:
        yield Letters(spark, broker, "proxied")


def test_a_lost_answer_sends_no_letter_twice(
    proxied: Letters, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(desk, "SETTLE_S", 1.0)
    ids = proxied.bury(20)
    lost: list[int] = []
    ask = Link.ask

    async def loses_answers(self: Any, address: str, code: int, *rest: Any, **more: Any) -> Any:
        answer = await ask(self, address, code, *rest, **more)
        if code == RequestCode.SEND_MESSAGE_V2 and len(lost) < 7:
            lost.append(code)
            raise AnswerTimedOut("the answer was lost on its way")
        return answer

    monkeypatch.setattr(Link, "ask", loses_answers)
    told = proxied.redrive()
    assert len(lost) == 7
    assert told.sent == 20
    assert proxied.copied() == Counter(ids)


def test_a_broker_that_is_away_for_a_moment_is_waited_for(
    proxied: Letters, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(desk, "SETTLE_S", 1.0)
    ids = proxied.bury(40)
    restarted: list[bool] = []

    def restart(_: Redriven) -> None:
        if not restarted:
            restarted.append(True)
            proxied.broker.restart(abrupt=True)

    told = proxied.redrive(rate=20, on_progress=restart)
    assert told.sent == 40
    assert proxied.copied() == Counter(ids)


def test_a_broker_that_is_started_anew_in_order_is_waited_for(
    spark: "SparkSession", monkeypatch: pytest.MonkeyPatch
) -> None:
    """No NameServer knows its topics meanwhile."""
    monkeypatch.setattr(desk, "SETTLE_S", 1.0)
    with EmbeddedBroker() as broker:
        letters = Letters(spark, broker, "restarted")
        ids = letters.bury(100)
        starting = threading.Timer(AWAY_S, broker.start_broker)

        def stop(_: Redriven) -> None:
            if starting.ident is None:
                broker.stop_broker()
                starting.start()

        assert letters.redrive(on_progress=stop).sent == 100
        starting.join()
        assert letters.copied() == Counter(ids)


def test_copies_stay_at_the_brokers_of_their_letters(spark: "SparkSession") -> None:
    """Elsewhere nobody would find them while that broker is away. Keys chose among fewer queues
    when these messages were sent."""
    with EmbeddedBroker(brokers=2) as broker:
        broker.stop_broker(1)
        letters = Letters(spark, broker, "two")

        def message(number: int) -> Message:
            tags = "paid" if number else ""
            return Message(letters.topic, b"letter", tags=tags, sharding_key=f"customer-{number}")

        ids = letters.bury(20, message=message)
        broker.start_broker(1)
        broker.create_topic(letters.topic)
        assert letters.redrive(choice=Choice(tags=("paid",))).sent == 19
        broker.stop_broker(1)
        assert letters.redrive().sent == 1
        broker.start_broker(1)
        assert letters.copied() == Counter(ids)
        assert {copy.queue.broker_name for copy in letters.copies()} == {"broker-a"}


def test_no_send_is_under_way_any_more_when_a_redrive_gives_up(
    letters: Letters, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else the next one could hold the locks, and send a letter that is only just arriving."""
    monkeypatch.setattr(desk, "SETTLE_S", 0.1)
    monkeypatch.setattr(desk, "ATTEMPTS", 2)
    monkeypatch.setattr(patience, "PATIENCE_S", 0.3)
    count = 2 * desk.ASKED_AT_ONCE
    bodies = [random.randbytes(200_000), b"small"]
    letters.bury(count, message=lambda number: Message(letters.topic, bodies[number % 2]))
    under_way: set[object] = set()
    ask, close = Link.ask, desk.RedriveDesk.close

    async def slowly(self: Any, address: str, code: int, *rest: Any, **more: Any) -> Any:
        if code != RequestCode.SEND_MESSAGE_V2:
            return await ask(self, address, code, *rest, **more)
        under_way.add(one := object())
        await asyncio.sleep(1.0)
        answer = await ask(self, address, code, *rest, **more)
        under_way.discard(one)
        return answer

    async def away(*_: Any) -> ReceivedMessage:
        raise ConnectionLost("the broker of large letters is away")

    async def close_and_tell(self: Any) -> None:
        left.append(len(under_way))
        await close(self)

    left: list[int] = []
    monkeypatch.setattr(Link, "ask", slowly)
    monkeypatch.setattr(Messages, "at", away)
    monkeypatch.setattr(desk.RedriveDesk, "close", close_and_tell)
    with pytest.raises(ClusterAway, match=f"{count // 2} copies cannot be sent now"):
        letters.redrive()
    assert left == [0]
    monkeypatch.undo()
    assert len(letters.copies()) == count // 2
    assert letters.redrive().sent == count // 2
    assert set(letters.copied().values()) == {1}


def test_reasons_that_name_letters_are_not_told_without_end() -> None:
    told = Redriven("g", dry_run=False)
    for number in (*range(REASONS_MAX + 5), 0):
        told.refuse(f"letter {number}")
    assert (len(told.reasons), told.refused) == (REASONS_MAX + 1, REASONS_MAX + 6)
    assert (told.reasons["letter 0"], told.reasons[OTHER_REASONS]) == (2, 5)


def test_a_copy_has_the_same_id_whenever_it_is_made() -> None:
    queue = MessageQueue("%DLQ%g", "broker-a", 0)
    letter = Letter(queue, 7, "ID", 1000, "", "", 3, b"body", 4, {"RETRY_TOPIC": "orders"})
    moved = Letter(queue, 8, "ID", 1000, "", "", 3, b"body", 4, {"RETRY_TOPIC": "orders"})
    assert letter.copy_id == letter.copy_id != moved.copy_id
    assert len(letter.copy_id) == 32
    assert bytes.fromhex(letter.copy_id)[0] == 0xF0
    assert letter.origin == "orders"


@pytest.mark.parametrize(
    ("properties", "origin"),
    [
        ({"RETRY_TOPIC": "orders", "DLQ_ORIGIN_TOPIC": "forged"}, "orders"),
        ({"DLQ_ORIGIN_TOPIC": "orders"}, "orders"),
        ({"RETRY_TOPIC": "%RETRY%g+orders"}, "orders"),
        ({"RETRY_TOPIC": "%RETRY%g_orders"}, "orders"),
        ({"RETRY_TOPIC": "%RETRY%other_orders"}, "%RETRY%other_orders"),
        ({}, ""),
    ],
)
def test_the_first_topic_is_the_one_that_brokers_tell(
    properties: dict[str, str], origin: str
) -> None:
    queue = MessageQueue("%DLQ%g", "broker-a", 0)
    assert Letter(queue, 7, "ID", 1, "", "", 3, b"", 0, properties).origin == origin
