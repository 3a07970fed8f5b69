"""Every kind of message with the Java clients, against CometMQ and the real RocketMQ.

The short set runs the newest client, the full set the one of the 4.9 line too. What the real broker
does where CometMQ does more goes into the table of `kinds_table`.
"""

from __future__ import annotations

import itertools
import os
import random
import statistics
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path

import pytest

from interop import systems
from interop.java_bench import Bench, numbered, on_each_queue, sent_bodies, topic_is_known
from interop.java_client import (
    FAST_ROUTES,
    NEWEST,
    ClientError,
    JavaClient,
    Message,
    Producer,
    PullConsumer,
    PushConsumer,
    bodies,
    body,
    wait_until,
)
from interop.kinds_table import DID
from interop.message_kinds import (
    TRACE_TOPIC,
    Answerer,
    Call,
    Requester,
    State,
    TransactionProducer,
    assert_order_was_kept,
    calls_of,
    in_transaction,
    taken,
    trace_records,
    with_settings,
)
from interop.rocketmq import ConfigValue, JsonObject
from interop.systems import Cluster, System

IS_SHORT = os.environ.get("COMETMQ_INTEROP_SET", "full") == "short"
COMETMQ = "cometmq"

DELAYS_S = (1, 2, 3, 1, 2)
FIRST_RETRY_LEVEL = 3
CHECKS_MAX = 3
CHECK_INTERVAL_MS = 1000
CONFIG: Mapping[str, ConfigValue] = {
    "messageDelayLevel": " ".join(f"{delay}s" for delay in DELAYS_S),
    "timerWheelEnable": True,
    "recallMessageEnable": True,
    "traceTopicEnable": True,
    "transactionTimeOut": 1000,
    "transactionCheckInterval": CHECK_INTERVAL_MS,
    "transactionCheckMax": CHECKS_MAX,
    # RocketMQ writes decisions down after three seconds, and asks about those not written down.
    "transactionOpBatchInterval": 50,
}
CHECKED_OUT = "TRANS_CHECK_MAX_TIME_TOPIC"

LATE_MS_MAX = 300
RETRY_LATE_S_MAX = 2.0
ANSWER_MS = 10_000
LOCK_EXPIRY_S = 120.0
WAVE = 50
SETTLED_S = 120.0
NEVER = 99
SUBSCRIPTION_PARSE_FAILED = 23
REQUEST_TIMEOUT = 10006

Record = Callable[[str, object], None]


@pytest.fixture(scope="module")
def shared(system: System, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with systems.running(system, tmp_path_factory.mktemp("kinds"), CONFIG) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def bench(client: JavaClient, shared: Cluster) -> Bench:
    return Bench(client, shared)


newest_client = pytest.mark.parametrize("client", [NEWEST], indirect=True, ids=str)


def is_comet(bench: Bench) -> bool:
    return bench.cluster.system.name == COMETMQ


def now_ms() -> int:
    return time.time_ns() // 1_000_000


# Delays


@pytest.mark.scenario("levels")
def test_messages_of_delay_levels_come_in_time_and_in_order(
    bench: Bench, record_property: Record
) -> None:
    topic, group = bench.topic("Levels", 1), bench.name("group")
    levels = (1, 2, 3)
    with bench.push(group, topic) as consumer:
        consumer.wait_for_queues(1)
        bench.producer.send(
            *(
                with_settings(topic, b"%d-%d" % (level, number), delayTimeLevel=level)
                for number in range(6)
                for level in levels
            )
        )
        received = consumer.wait_for(18)

    late_ms = []
    for level in levels:
        of_level = [m for m in in_queue_order(received) if m["properties"]["DELAY"] == str(level)]
        assert bodies(of_level) == [b"%d-%d" % (level, number) for number in range(6)]
        delay_ms = DELAYS_S[level - 1] * 1000
        late_ms += [lateness_ms(m, m["bornTimestamp"] + delay_ms) for m in of_level]
    judge_promptness(bench, late_ms, record_property)


@newest_client
@pytest.mark.scenario("times")
def test_messages_with_times_of_their_own_come_in_time(
    bench: Bench, record_property: Record
) -> None:
    topic, group = bench.topic("Times", 1), bench.name("group")
    with bench.push(group, topic) as consumer:
        consumer.wait_for_queues(1)
        moment_ms = now_ms() + 2345
        bench.producer.send(
            *(with_settings(topic, b"delay-%d" % n, delayTimeMs=1500) for n in range(5)),
            *(with_settings(topic, b"moment-%d" % n, deliverTimeMs=moment_ms) for n in range(5)),
        )
        received = consumer.wait_for(10)

    by_body = {body(m): m for m in received}
    late_ms = [
        lateness_ms(m, m["bornTimestamp"] + 1500 if text.startswith(b"delay") else moment_ms)
        for text, m in by_body.items()
    ]
    assert sorted(by_body) == sorted(
        b"%b-%d" % (way, n) for way in (b"delay", b"moment") for n in range(5)
    )
    assert len(received) == 10
    judge_promptness(bench, late_ms, record_property)


def in_queue_order(messages: Iterable[JsonObject]) -> list[JsonObject]:
    """Of one queue; the threads of a consumer tell of them in any order."""
    return sorted(messages, key=lambda message: int(message["queueOffset"]))


def lateness_ms(message: JsonObject, due_ms: int) -> int:
    return int(message["receivedMs"]) - due_ms


def judge_promptness(bench: Bench, late_ms: list[int], record: Record) -> None:
    print(f"late by ms: {late_ms}")
    # One message may wait for a busy machine, half of them do not.
    is_prompt = statistics.median(late_ms) < LATE_MS_MAX
    if is_comet(bench):
        assert min(late_ms) >= 0
        assert is_prompt
    if min(late_ms) < 0:
        record(DID, "some early")
    if not is_prompt:
        record(DID, f"later than {LATE_MS_MAX} ms")


@newest_client
@pytest.mark.scenario("recall")
def test_a_delayed_message_is_taken_back(bench: Bench) -> None:
    topic, group = bench.topic("Recall", 1), bench.name("group")
    with bench.push(group, topic) as consumer:
        sent = bench.producer.send(
            *(with_settings(topic, b"%d" % n, delayTimeMs=3000) for n in range(6)),
        )
        recalled = [
            bench.producer.recall(topic, result["recallHandle"]) for result in (sent[1], sent[4])
        ]
        bench.producer.send(with_settings(topic, b"last", delayTimeMs=5000))
        received = consumer.wait_for_bodies([b"last"])

    assert recalled == [sent[1]["msgId"], sent[4]["msgId"]]
    assert sorted(bodies(received)) == [b"0", b"2", b"3", b"5", b"last"]


# Transactions


@pytest.fixture
def transactions(bench: Bench) -> Iterator[TransactionProducer]:
    with TransactionProducer(bench.client, bench.namesrv, bench.name("transactions")) as producer:
        yield producer


@pytest.mark.scenario("decided")
def test_transactions_end_as_their_producer_says(
    bench: Bench, transactions: TransactionProducer
) -> None:
    topic, group = bench.topic("Decided", 1), bench.name("group")
    states = [State.COMMIT, State.ROLLBACK] * 5
    with bench.push(group, topic) as consumer:
        results = transactions.send(
            *(
                in_transaction(topic, b"%d-%b" % (number, state.encode()), state)
                for number, state in enumerate(states)
            )
        )
        consumer.wait_for(5)
        # Everything decided before this has been delivered when it is.
        bench.producer.send(Message(topic, b"last"))
        received = {body(m): m for m in consumer.wait_for_bodies([b"last"])}
        count = len(consumer.received())

    assert [result["state"] for result in results] == states
    # RocketMQ takes decisions as its threads come to them, so in any order.
    committed = [b"%d-COMMIT_MESSAGE" % number for number in range(0, 10, 2)]
    assert received.keys() == {*committed, b"last"}
    assert count == len(received)
    for text, result in zip(committed, results[::2], strict=True):
        message = received[text]
        assert message["uniqKey"] == result["msgId"] == result["transactionId"]
        assert message["topic"] == topic
        properties = message["properties"]
        assert (properties["TAGS"], properties["KEYS"]) == ("T", "K")
        assert properties["TRAN_MSG"] == "true"
        assert not properties.keys() & {"REAL_TOPIC", "REAL_QID"}
    assert transactions.questions().so_far() == []


@pytest.mark.scenario("asked")
def test_a_producer_that_does_not_know_is_asked_until_it_does(
    bench: Bench, transactions: TransactionProducer
) -> None:
    topic, group = bench.topic("Asked", 1), bench.name("group")
    unknown = State.UNKNOWN
    ways = {
        b"commit": [State.COMMIT],
        b"rollback": [State.ROLLBACK],
        b"later": [unknown, State.COMMIT],
    }
    with bench.push(group, topic) as consumer:
        sent_ms = now_ms()
        results = transactions.send(
            *(in_transaction(topic, text, unknown, *checks) for text, checks in ways.items())
        )
        questions = transactions.questions().wait_until(lambda asked: len(asked) >= 4)
        received = consumer.wait_for(2)

    assert {result["state"] for result in results} == {unknown}
    assert bodies(in_queue_order(received)) == [b"commit", b"later"]
    answers = {text: [q["answer"] for q in questions if body(q) == text] for text in ways}
    assert answers == ways
    ids = {text: result["msgId"] for text, result in zip(ways, results, strict=True)}
    for question in questions:
        assert question["transactionId"] == question["uniqKey"] == ids[body(question)]
        assert question["topic"] == topic
        assert question["properties"]["TAGS"] == "T"
        assert question["receivedMs"] >= sent_ms + CHECK_INTERVAL_MS


@pytest.mark.scenario("put aside")
def test_a_transaction_that_nobody_ever_decides_is_put_aside(
    bench: Bench, transactions: TransactionProducer
) -> None:
    topic = bench.topic("Forgotten", 1)
    text = bench.name("forgotten").encode()
    (result,) = transactions.send(in_transaction(topic, text, State.UNKNOWN))

    wait_until(lambda: put_aside(bench, text) != [], "the message is put aside")

    (aside,) = put_aside(bench, text)
    questions = transactions.questions().so_far()
    assert [body(question) for question in questions] == [text] * CHECKS_MAX
    assert aside["uniqKey"] == result["msgId"]
    assert aside["properties"]["TAGS"] == "T"
    assert bench.reader.stored(topic) == 0


def put_aside(bench: Bench, text: bytes) -> list[JsonObject]:
    if not topic_is_known(bench.admin, CHECKED_OUT):
        return []
    return [m for m in bench.reader.read_all(CHECKED_OUT) if body(m) == text]


@pytest.mark.scenario("dead producer")
def test_another_producer_of_the_group_answers_for_one_that_died(
    bench: Bench, transactions: TransactionProducer, tmp_path: Path
) -> None:
    topic, group = bench.topic("Orphan", 1), bench.name("group")
    producers = bench.name("family")
    unknown = State.UNKNOWN
    with (
        JavaClient(bench.kind, tmp_path / "victim") as other,
        TransactionProducer(bench.client, bench.namesrv, producers) as survivor,
        bench.push(group, topic) as consumer,
    ):
        # A producer that has sent nothing yet is not known to the broker.
        survivor.send(in_transaction(topic, b"hello", State.COMMIT))
        TransactionProducer(other, bench.namesrv, producers).send(
            in_transaction(topic, b"orphan", unknown, State.COMMIT),
            in_transaction(topic, b"doomed", unknown, State.ROLLBACK),
        )
        other.kill()
        questions = survivor.questions().wait_until(lambda asked: len(asked) >= 2)
        received = consumer.wait_for(2)

    assert sorted(bodies(questions)) == [b"doomed", b"orphan"]
    assert bodies(in_queue_order(received)) == [b"hello", b"orphan"]
    assert transactions.questions().so_far() == []


# Order


@pytest.mark.scenario("key order")
def test_messages_of_one_key_keep_their_order(bench: Bench) -> None:
    topic, group = bench.topic("KeyOrder"), bench.name("group")
    keys = [f"key-{number}" for number in range(8)]
    messages = [
        Message(topic, f"{key} {step}".encode(), order_key=key)
        for step in range(20)
        for key in keys
    ]
    with (
        bench.push(group, topic, orderly=True) as one,
        bench.push(group, topic, orderly=True) as other,
    ):
        one.wait_for_queues(2)
        other.wait_for_queues(2)
        bench.producer.send(*messages)
        wait_until(lambda: len(one.received()) + len(other.received()) >= len(messages), "all came")
        halves = [bodies(one.received()), bodies(other.received())]

    assert sorted(halves[0] + halves[1]) == sorted(sent_bodies(messages))
    for key in keys:
        steps = [f"{key} {step}".encode() for step in range(20)]
        assert steps in [[t for t in half if t.startswith(f"{key} ".encode())] for half in halves]


@pytest.mark.scenario("key order")
def test_a_topic_with_one_queue_is_in_order_as_a_whole(bench: Bench) -> None:
    topic, group = bench.topic("GlobalOrder", 1), bench.name("group")
    messages = numbered(topic, 200)
    with (
        bench.push(group, topic, orderly=True) as one,
        bench.push(group, topic, orderly=True) as other,
    ):
        bench.producer.send(*messages)
        wait_until(lambda: len(one.received()) + len(other.received()) >= len(messages), "all came")

    received = sorted(one.received() + other.received(), key=lambda m: int(m["beganNs"]))
    assert bodies(received) == sent_bodies(messages)


def orderly(bench: Bench, group: str, topic: str, client: JavaClient | None = None) -> PushConsumer:
    return bench.push(
        group,
        topic,
        client=client,
        orderly=True,
        timed=True,
        suspendCurrentQueueTimeMillis=20,
    )


def laborious(bench: Bench, topic: str, count: int, prefix: str) -> list[Message]:
    """Messages that take their time, some of which are refused at first."""
    return [
        Message(
            topic,
            message.body,
            properties={"work": "20"} | ({"fail": "1"} if number % 7 == 3 else {}),
            queue=message.queue,
        )
        for number, message in enumerate(on_each_queue(bench.reader.queues(topic), count, prefix))
    ]


def send_meanwhile(bench: Bench, messages: Iterable[Message]) -> None:
    bench.client.begin(
        "producer.send",
        name=bench.producer.name,
        messages=[message.json() for message in messages],
    )


@pytest.mark.scenario("storm")
@pytest.mark.timeout(240)
def test_the_order_outlives_a_storm_of_consumers_coming_and_going(bench: Bench) -> None:
    topic, group = bench.topic("Storm"), bench.name("group")
    consumers: list[PushConsumer] = []
    for wave in range(10):
        send_meanwhile(bench, laborious(bench, topic, WAVE, f"wave{wave}"))
        consumers.append(orderly(bench, group, topic))
        consumers[-1].handled().wait_until(bool)
        if wave >= 2:
            # It goes while the others go on, and the next one comes.
            consumers[wave - 2].__exit__()

    def calls() -> list[Call]:
        return [call for consumer in consumers for call in calls_of(consumer)]

    wanted = set(itertools.product(range(4), range(10 * WAVE)))
    wait_until(lambda: taken(calls()) == wanted, "all were consumed", SETTLED_S)
    consumers[8].shutdown()
    consumers[9].shutdown()
    assert_order_was_kept(calls())
    assert any(not call.taken for call in calls())
    took = Counter(call.consumer for call in calls())
    print(f"calls by consumer: {took}")
    assert len(took) == len(consumers)


@pytest.mark.full  # A broker keeps a queue for a dead consumer for a minute.
@pytest.mark.scenario("killed in order")
@pytest.mark.timeout(300)
def test_the_order_outlives_killed_consumers(bench: Bench, tmp_path: Path) -> None:
    topic, group = bench.topic("KilledOrderly"), bench.name("group")
    with (
        JavaClient(bench.kind, tmp_path / "victims") as other,
        orderly(bench, group, topic) as survivor,
    ):
        victims = [orderly(bench, group, topic, other) for _ in range(2)]
        send_meanwhile(bench, laborious(bench, topic, 200, "step"))
        for consumer in victims:
            consumer.wait_for(20)
        other.kill()
        killed_ns = time.monotonic_ns()

        def calls() -> list[Call]:
            of_victims = [call for victim in victims for call in calls_of(victim, killed_ns)]
            return of_victims + calls_of(survivor)

        wanted = set(itertools.product(range(4), range(200)))
        wait_until(lambda: taken(calls()) == wanted, "all were consumed", LOCK_EXPIRY_S)
        survivor.shutdown()
        assert_order_was_kept(calls())


# Retries


@pytest.mark.scenario("retry delays")
def test_each_retry_waits_for_its_own_delay(bench: Bench) -> None:
    topic, group = bench.topic("RetryDelays", 1), bench.name("group")
    with bench.push(group, topic) as consumer:
        bench.producer.send(Message(topic, b"again", properties={"fail": "3"}))
        received = consumer.wait_for(4)

    assert [m["reconsumeTimes"] for m in received] == [0, 1, 2, 3]
    waited_s = [
        (later["receivedMs"] - earlier["receivedMs"]) / 1000
        for earlier, later in itertools.pairwise(received)
    ]
    for waited, delay in zip(waited_s, DELAYS_S[FIRST_RETRY_LEVEL - 1 :], strict=True):
        assert delay <= waited < delay + RETRY_LATE_S_MAX, waited_s


def wait_for_dead_letters(bench: Bench, group: str, count: int) -> list[JsonObject]:
    topic = f"%DLQ%{group}"
    wait_until(lambda: topic_is_known(bench.admin, topic), "there are dead letters")
    wait_until(lambda: bench.reader.stored(topic) >= count, f"there are {count} dead letters")
    return bench.reader.read_all(topic)


@pytest.mark.scenario("client's retries")
@pytest.mark.parametrize("retries", [0, 2])
def test_dead_letters_come_after_as_many_retries_as_the_consumer_says(
    bench: Bench, retries: int
) -> None:
    topic, group = bench.topic("ClientRetries", 1), bench.name("group")
    with bench.push(group, topic, maxReconsumeTimes=retries) as consumer:
        (sent,) = bench.producer.send(Message(topic, b"dead", properties={"fail": str(NEVER)}))
        (dead,) = wait_for_dead_letters(bench, group, 1)
        received = consumer.received()

    assert [m["reconsumeTimes"] for m in received] == list(range(retries + 1))
    assert (body(dead), dead["uniqKey"]) == (b"dead", sent["msgId"])
    assert dead["properties"]["RETRY_TOPIC"] == topic


@pytest.mark.scenario("group's retries")
def test_a_java_consumer_that_says_nothing_counts_for_sixteen_retries(bench: Bench) -> None:
    """It names its own default of 16 with each refusal, and the broker believes that."""
    topic, group = bench.topic("GroupRetries", 1), bench.name("group")
    bench.admin.create_group(group, bench.cluster.broker.address, retryMaxTimes=1)
    with bench.push(group, topic) as consumer:
        bench.producer.send(Message(topic, b"again", properties={"fail": "2"}))
        received = consumer.wait_for(3)

    assert [m["reconsumeTimes"] for m in received] == [0, 1, 2]
    assert not topic_is_known(bench.admin, f"%DLQ%{group}")


@pytest.mark.scenario("orderly retries")
def test_an_orderly_consumer_goes_on_behind_a_dead_letter(bench: Bench) -> None:
    topic, group = bench.topic("OrderlyRetries", 1), bench.name("group")
    with bench.push(
        group, topic, orderly=True, maxReconsumeTimes=2, suspendCurrentQueueTimeMillis=50
    ) as consumer:
        (_, sent, _) = bench.producer.send(
            Message(topic, b"before"),
            Message(topic, b"dead", "T", "K", properties={"fail": str(NEVER)}),
            Message(topic, b"after"),
        )
        received = consumer.wait_for_bodies([b"after"])
        (dead,) = wait_for_dead_letters(bench, group, 1)

    assert bodies(received) == [b"before", b"dead", b"dead", b"dead", b"after"]
    assert [m["reconsumeTimes"] for m in received[1:4]] == [0, 1, 2]
    assert (body(dead), dead["topic"]) == (b"dead", f"%DLQ%{group}")
    properties = dead["properties"]
    assert (properties["TAGS"], properties["KEYS"]) == ("T", "K")
    assert properties["RETRY_TOPIC"] == topic
    assert properties["ORIGIN_MESSAGE_ID"] == sent["msgId"]


# SQL

PLACES = ("north", "south", None, "northwest", "far north", "it's")
Fits = Callable[[int, str | None], bool]
EXPRESSIONS: Mapping[str, Fits] = {
    "a > 5": lambda a, _: a > 5,
    "a >= 3 AND a < 7": lambda a, _: 3 <= a < 7,
    "a <> 4": lambda a, _: a != 4,
    "a = 4 OR a = 7": lambda a, _: a in {4, 7},
    "NOT (a > 5)": lambda a, _: a <= 5,
    "a BETWEEN 2 AND 4": lambda a, _: 2 <= a <= 4,
    "a NOT BETWEEN 2 AND 4": lambda a, _: not 2 <= a <= 4,
    "half > 2.4": lambda a, _: a / 2 > 2.4,
    "place = 'south'": lambda _, place: place == "south",
    "place = 'it''s'": lambda _, place: place == "it's",
    "place <> 'south'": lambda _, place: place not in {"south", None},
    "place IN ('north', 'south')": lambda _, place: place in {"north", "south"},
    "place NOT IN ('north', 'south')": lambda _, place: place not in {"north", "south", None},
    "place IS NULL": lambda _, place: place is None,
    "place IS NOT NULL": lambda _, place: place is not None,
    "place CONTAINS 'nor'": lambda _, place: "nor" in (place or ""),
    "place STARTSWITH 'nor'": lambda _, place: (place or "").startswith("nor"),
    "place ENDSWITH 'north'": lambda _, place: (place or "").endswith("north"),
    "place NOT CONTAINS 'nor'": lambda _, place: "nor" not in (place or "nor"),
    "TAGS = 'even' AND place IS NOT NULL": lambda a, place: a % 2 == 0 and place is not None,
    "(a < 2 OR a > 8) AND NOT (place IS NULL)": lambda a, place: (a < 2 or a > 8) and bool(place),
}


def with_properties(topic: str) -> dict[bytes, tuple[Message, int, str | None]]:
    """Messages of all sorts, by body, with what an expression may look at."""
    messages = {}
    for number, place in zip(range(12), itertools.cycle(PLACES), strict=False):
        properties = {"a": str(number), "half": str(number / 2)}
        properties |= {} if place is None else {"place": place}
        text = b"%d" % number
        tag = "odd" if number % 2 else "even"
        messages[text] = (Message(topic, text, tag, properties=properties), number, place)
    return messages


@pytest.mark.scenario("sql")
def test_sql_expressions_choose_messages(bench: Bench) -> None:
    topic = bench.topic("Sql", 1)
    messages = with_properties(topic)
    bench.producer.send(*(message for message, _, _ in messages.values()))

    wrong = {}
    reader = sql_reader(bench, topic)
    (queue,) = reader.queues(topic)
    for expression, fits in EXPRESSIONS.items():
        pulled = reader.pull(queue, 0, expression=expression, sql=True)
        wanted = [text for text, (_, a, place) in messages.items() if fits(a, place)]
        if bodies(pulled["messages"]) != wanted or pulled["nextBeginOffset"] != len(messages):
            wrong[expression] = (bodies(pulled["messages"]), wanted)
    assert not wrong


def sql_reader(bench: Bench, topic: str) -> PullConsumer:
    """A client sends no expression to a broker before that has answered its heartbeat."""
    reader = PullConsumer(bench.client, bench.namesrv, bench.name("reader"), **FAST_ROUTES)
    (queue,) = reader.queues(topic)

    def may_send() -> bool:
        try:
            reader.pull(queue, 0, expression="TRUE", sql=True)
        except ClientError as error:
            if "does not upgrade" in error.text:
                return False
            raise
        return True

    wait_until(may_send, "the client knows the broker's version")
    return reader


@pytest.mark.scenario("sql")
def test_a_consumer_gets_only_what_its_expression_allows(bench: Bench) -> None:
    topic, group = bench.topic("SqlPush", 1), bench.name("group")
    messages = [message for message, _, _ in with_properties(topic).values()]
    # The last one counts, so that progress passes all before it.
    last = Message(topic, b"last", "even", properties={"a": "11", "place": "north"})

    with bench.push(
        group, topic, expression="a > 3 AND (place = 'north' OR TAGS = 'odd')", sql=True
    ) as consumer:
        consumer.wait_for_queues(1)
        bench.producer.send(*messages, last)
        consumer.wait_for_bodies([b"last"])
        bench.wait_until_consumed(group, topic, len(messages) + 1, consumer)
        received = bodies(in_queue_order(consumer.received()))

    assert received == [b"5", b"6", b"7", b"9", b"11", b"last"]


@pytest.mark.scenario("bad sql")
@pytest.mark.parametrize("expression", ["a > > 5", "a BETWEEN 'x' AND", "a = 'open", "5"])
def test_a_wrong_expression_is_refused_when_the_consumer_starts(
    bench: Bench, expression: str
) -> None:
    topic, group = bench.topic("BadSql", 1), bench.name("group")
    with pytest.raises(ClientError) as refused:
        bench.push(group, topic, expression=expression, sql=True)
    assert refused.value.type == "MQClientException"
    assert refused.value.code == SUBSCRIPTION_PARSE_FAILED


# Requests


@pytest.fixture
def requester(bench: Bench) -> Iterator[Requester]:
    with Requester(bench.client, bench.namesrv, bench.name("requester")) as started:
        yield started


@pytest.mark.scenario("requests")
def test_requests_are_answered(bench: Bench, requester: Requester) -> None:
    topic, group = bench.topic("Requests", 2), bench.name("answerer")
    asked = {"asked": "žluťoučký"}
    with Answerer(bench.client, bench.namesrv, group, topic):
        one = requester.request(Message(topic, b"one", properties=asked), ANSWER_MS)
        questions = [Message(topic, b"many-%d" % n, properties=asked) for n in range(50)]
        many = requester.request_async(questions, ANSWER_MS)

    assert body(one) == b"answer to one"
    assert bodies(many) == [b"answer to many-%d" % number for number in range(50)]
    for answer in (one, *many):
        assert answer["properties"].items() >= {**asked, "MSG_TYPE": "reply"}.items()


@pytest.mark.scenario("no answer")
def test_a_request_that_nobody_answers_ends_in_time(bench: Bench, requester: Requester) -> None:
    topic = bench.topic("Unanswered", 1)
    before_s = time.monotonic()
    with pytest.raises(ClientError) as ended:
        requester.request(Message(topic, b"anybody?"), 1500)
    waited_s = time.monotonic() - before_s

    assert ended.value.type == "RequestTimeoutException"
    assert f"CODE: {REQUEST_TIMEOUT} " in ended.value.text
    assert 1.5 <= waited_s < 10
    (stored,) = bench.reader.read_all(topic)
    assert body(stored) == b"anybody?"
    assert stored["properties"]["TTL"] == "1500"


# Traces


@pytest.mark.scenario("trace")
def test_producers_and_consumers_leave_traces(bench: Bench) -> None:
    topic, group = bench.topic("Traced", 1), bench.name("group")
    producers = bench.name("traced")
    with (
        Producer(bench.client, bench.namesrv, producers, traced=True) as producer,
        bench.push(group, topic, traced=True) as consumer,
    ):
        (sent,) = producer.send(Message(topic, b"traced", "T", "K"))
        consumer.wait_for(1)
        wait_until(lambda: len(traces(bench, sent["msgId"])) >= 3, "three traces are there")
        found = traces(bench, sent["msgId"])

    assert sorted(found) == ["Pub", "SubAfter", "SubBefore"]
    published, before = found["Pub"], found["SubBefore"]
    assert published[3:8] == [producers, topic, sent["msgId"], "T", "K"]
    assert published[8] == bench.cluster.broker.address
    assert published[9] == str(len(b"traced"))
    assert sent["offsetMsgId"] in published
    assert before[3] == group
    assert before[5] == sent["msgId"]


def traces(bench: Bench, message_id: str) -> dict[str, list[str]]:
    """What was traced about a message, by what it is."""
    records = trace_records(bench.reader.read_all(TRACE_TOPIC))
    return {record[0]: record for record in records if message_id in record}


# A broker that is killed

DELAYED = 2_000 if IS_SHORT else 10_000
TRANSACTIONS = 200 if IS_SHORT else 1_000
SEND_AT_ONCE = 500
DELAYS_LONG_S = (4, 6, 8)
KILL_CONFIG: Mapping[str, ConfigValue] = {
    "messageDelayLevel": " ".join(f"{delay}s" for delay in DELAYS_LONG_S),
    "timerWheelEnable": True,
    "transactionTimeOut": 4000,
    "transactionCheckInterval": CHECK_INTERVAL_MS,
    "maxTransferCountOnMessageInMemory": 1024,
}


@pytest.fixture
def victim(client: JavaClient, system: System, tmp_path: Path) -> Iterator[Bench]:
    with systems.running(system, tmp_path, KILL_CONFIG) as cluster:
        yield Bench(client, cluster)


def send_many(bench: Bench, messages: list[Message]) -> None:
    for start in range(0, len(messages), SEND_AT_ONCE):
        bench.producer.send_async(*messages[start : start + SEND_AT_ONCE])


def kill_amid(bench: Bench, topic: str, wanted: int) -> None:
    """Kill the broker when a part of the messages is delivered, and start it again."""
    wait_until(lambda: bench.reader.stored(topic) > wanted // 4, "a part is delivered")
    delivered = bench.reader.stored(topic)
    bench.cluster.broker.kill()
    print(f"killed when {delivered} of {wanted} were delivered")
    assert delivered < wanted
    bench.cluster.broker.start()


def wait_for_stored(bench: Bench, topic: str, wanted: set[bytes]) -> list[bytes]:
    """Everything in a topic once it holds these."""

    def there() -> bool:
        return bench.reader.stored(topic) >= len(wanted) and wanted <= set(all_bodies(bench, topic))

    wait_until(there, f"{topic} holds {len(wanted)}", SETTLED_S)
    return all_bodies(bench, topic)


def all_bodies(bench: Bench, topic: str) -> list[bytes]:
    return bodies(bench.reader.read_all(topic))


def judge(bench: Bench, found: list[bytes], wanted: set[bytes], record: Record) -> None:
    counts = Counter(found)
    twice = sum(count > 1 for count in counts.values())
    unwanted = len(counts.keys() - wanted)
    print(f"{len(found)} found, {len(wanted)} wanted, {twice} more than once, {unwanted} unwanted")
    assert counts.keys() >= wanted
    if is_comet(bench):
        assert counts == Counter(wanted)
    if twice:
        record(DID, "none lost, some more than once")
    if unwanted:
        record(DID, "some that were rolled back")


@pytest.mark.scenario("broker killed")
@pytest.mark.timeout(300)
def test_delayed_and_transactional_messages_outlive_a_killed_broker(
    victim: Bench, record_property: Record
) -> None:
    topic = victim.topic("Killed")
    states = {
        "committed": (State.COMMIT, State.COMMIT),
        "dropped": (State.ROLLBACK, State.ROLLBACK),
        "committed-late": (State.UNKNOWN, State.COMMIT),
        "dropped-late": (State.UNKNOWN, State.ROLLBACK),
    }
    halves = [
        in_transaction(topic, f"{name}-{number}".encode(), *states[name])
        for number, name in zip(range(TRANSACTIONS), itertools.cycle(states), strict=False)
    ]
    levels = itertools.cycle(range(1, len(DELAYS_LONG_S) + 1))
    delayed = [
        with_settings(topic, b"delayed-%d" % number, delayTimeLevel=level)
        for number, level in zip(range(DELAYED), levels, strict=False)
    ]
    wanted = set(sent_bodies(delayed))
    wanted |= {half.body for half in halves if half.body.startswith(b"committed")}

    with TransactionProducer(victim.client, victim.namesrv, "killed") as producer:
        send_many(victim, delayed)
        producer.send(*halves)
        kill_amid(victim, topic, len(wanted))
        last = [
            with_settings(topic, b"last-%d" % level, delayTimeLevel=level)
            for level in range(1, len(DELAYS_LONG_S) + 1)
        ]
        victim.producer.send(*last)
        producer.send(in_transaction(topic, b"last-half", State.UNKNOWN, State.COMMIT))
        # Behind the last ones of their sort nothing more comes.
        wanted |= {*sent_bodies(last), b"last-half"}
        judge(victim, wait_for_stored(victim, topic, wanted), wanted, record_property)


@newest_client
@pytest.mark.scenario("broker killed, times")
@pytest.mark.timeout(300)
def test_messages_with_times_of_their_own_outlive_a_killed_broker(
    victim: Bench, record_property: Record
) -> None:
    topic = victim.topic("KilledTimes")
    chance = random.Random(0)
    delayed = [
        with_settings(topic, b"delayed-%d" % number, delayTimeMs=chance.randrange(4_000, 12_000))
        for number in range(DELAYED)
    ]
    send_many(victim, delayed)
    last_ms = now_ms() + 15_000
    kill_amid(victim, topic, DELAYED)
    last_ms = max(last_ms, now_ms() + 3000)
    victim.producer.send(with_settings(topic, b"last", deliverTimeMs=last_ms))
    wanted = {*sent_bodies(delayed), b"last"}
    judge(victim, wait_for_stored(victim, topic, wanted), wanted, record_property)
