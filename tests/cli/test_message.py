"""`cometmq message` and `cometmq dlq` against a real broker."""

import json
import threading

import pytest

from cometmq.cli import dlq
from cometmq.cli.commands import build_parser
from cometmq.client import Message, MessageQueue, SendResult, blocking
from cometmq.client.producer.packing import Packing
from cometmq.protocol.flags import COMPRESSED
from cometmq.testing import BlockingEmbeddedBroker, EmbeddedBroker
from tests.spark.dead_letters import bury

from .program import Program

QUEUE = MessageQueue("m-orders", "broker-a", 0)
ESCAPE = "red \x1b[31m text"


@pytest.fixture(scope="module")
def sent(cluster: BlockingEmbeddedBroker, producer: blocking.Producer) -> list[SendResult]:
    """Four messages: a text, Chinese, bytes that are no text, and one that steers terminals."""
    cluster.create_topic("m-orders", 1)
    bodies = [b"one coffee", "两杯茶".encode(), b"\xff\x00", ESCAPE.encode()]
    return [
        producer.send(Message("m-orders", body, tags=f"T{n}", keys=[f"k{n}", "every"]))
        for n, body in enumerate(bodies)
    ]


def test_a_message_is_found_by_both_its_ids(cometmq: Program, sent: list[SendResult]) -> None:
    text, (found,) = cometmq.both("message", "show", sent[0].message_id, "--topic", "m-orders")
    assert (found["body"], found["tags"], found["keys"]) == ("one coffee", "T0", ["k0", "every"])
    assert (found["queue"], found["offset"]) == (0, 0)
    assert text.out.endswith("\none coffee\n")
    assert ["message id", sent[0].message_id] in text.rows
    (found,) = cometmq("message", "show", sent[1].offset_message_id, "-o", "json").value
    assert found["body"] == "两杯茶"


def test_messages_are_found_by_key(cometmq: Program, sent: list[SendResult]) -> None:
    text, found = cometmq.both("message", "key", "m-orders", "every")
    assert [message["message_id"] for message in found] == [one.message_id for one in sent]
    assert "broker-a:0@1 [T1 k1 every]  两杯茶" in text.out
    (found,) = cometmq("message", "key", "m-orders", "k2", "-o", "json").value
    assert found["body_base64"] == "/wA="
    assert "no message with the key none" in cometmq.fails("message", "key", "m-orders", "none",
                                                           code=3)  # fmt: skip
    assert "no message" in cometmq.fails(
        "message", "key", "m-orders", "k1", "--until", "1h", code=3
    )


def test_a_message_is_found_by_its_place(cometmq: Program, sent: list[SendResult]) -> None:
    text, found = cometmq.both("message", "at", "m-orders", 0, 1)
    assert found["message_id"] == sent[1].message_id
    assert "两杯茶" in text.out
    told = cometmq.fails("message", "at", "m-orders", 0, 99, code=3)
    assert told.endswith("has no message at offset 99; it has 0 up to 3")
    assert "has no queues at broker" in cometmq.fails(
        "message", "at", "m-orders", 0, 0, "--broker", "broker-z", code=4
    )


def test_messages_of_a_span_of_time_come_in_order(cometmq: Program, sent: list[SendResult]) -> None:
    text, found = cometmq.both("message", "range", "m-orders", "--since", "1h", "--limit", 2)
    assert [message["message_id"] for message in found] == [one.message_id for one in sent[:2]]
    assert len(text.out.splitlines()) == 2
    assert cometmq("message", "range", "m-orders", "--until", "1h", "-o", "json").value == []
    tagged = cometmq("message", "range", "m-orders", "--tags", "T1||T2", "-o", "json").value
    assert [message["tags"] for message in tagged] == ["T1", "T2"]


def test_no_message_steers_the_terminal(cometmq: Program, sent: list[SendResult]) -> None:
    for arguments in (("at", "m-orders", 0, 3), ("key", "m-orders", "k3")):
        out = cometmq("message", *arguments).out
        assert "\x1b" not in out
        assert "red \\x1b[31m text" in out
    assert cometmq("tail", "m-orders", "--last", 1, "--raw").out == f"{ESCAPE}\n"


def test_a_copy_is_sent_again(
    cometmq: Program, admin: blocking.Admin, sent: list[SendResult]
) -> None:
    admin.topics.create("m-copies", queues=1)
    arguments = ("message", "resend", sent[0].message_id, "--topic", "m-orders", "--to", "m-copies")
    text, told = cometmq.both(*arguments)
    assert told["topic"] == "m-copies"
    assert ["topic", "m-copies"] in text.rows
    copies = list(admin.messages.read_topic("m-copies"))
    assert [copy.body for copy in copies] == [b"one coffee"] * 2
    assert {copy.properties["RESENT_FROM"] for copy in copies} == {sent[0].message_id}
    assert copies[0].keys == ["k0", "every"]


def test_one_member_is_handed_a_message(
    cometmq: Program, cluster: BlockingEmbeddedBroker, sent: list[SendResult]
) -> None:
    got: list[bytes] = []

    def take(message: object) -> None:
        got.append(message.body)  # type: ignore[attr-defined]

    with blocking.PushConsumer(
        cluster.namesrv, group="m-takers", topics={"m-orders": "NONE"}, handler=take
    ) as member:
        text, told = cometmq.both(
            "message", "deliver", sent[0].message_id, "--topic", "m-orders", "-g", "m-takers"
        )
        assert (told["client_id"], told["result"]) == (member.client_id, "CR_SUCCESS")
        assert "CR_SUCCESS" in text.out
    assert got == [b"one coffee"] * 2
    told = cometmq.fails("message", "deliver", sent[0].offset_message_id, "-g", "m-takers", code=3)
    assert "group m-takers has no member" in told


def test_a_trace_is_told_in_order(
    cometmq: Program, producer: blocking.Producer, admin: blocking.Admin
) -> None:
    fields = ["Pub", "1700000000000", "region", "shop", "orders", "ID-1", "T", "k", "host", "9",
              "12", "0", "offset-id", "true"]  # fmt: skip
    if "RMQ_SYS_TRACE_TOPIC" not in admin.topics.names(internal=True):
        admin.topics.create("RMQ_SYS_TRACE_TOPIC", queues=1)
    report = "\x01".join(fields) + "\x02"
    producer.send(Message("RMQ_SYS_TRACE_TOPIC", report.encode(), keys="ID-1"))
    text, (trace,) = cometmq.both("message", "trace", "ID-1")
    assert (trace["kind"], trace["group"], trace["cost_ms"]) == ("Pub", "shop", 12)
    assert "2023-11-14 22:13:20.000" in text.out
    assert "tracing" in cometmq.fails("message", "trace", "ID-2", code=3)


def test_ids_that_lead_nowhere_are_told(cometmq: Program, sent: list[SendResult]) -> None:
    unknown = "7F000001" + "0" * 24
    told = cometmq.fails("message", "show", unknown, "--topic", "m-orders", code=3)
    assert told == f"topic m-orders has no message {unknown}"
    assert "say its topic (--topic)" in cometmq.fails("message", "show", "nonsense", code=3)


# -- dead letters --------------------------------------------------------------------------------


def test_dead_letters_are_listed_shown_and_redriven_once(
    cometmq: Program, cluster: BlockingEmbeddedBroker, admin: blocking.Admin
) -> None:
    cluster.create_topic("m-buried", 1)
    bury(
        cluster.namesrv, "m-buried", "m-unlucky", 5,
        lambda n: Message("m-buried", b"letter %d" % n, keys=f"key{n}", tags="T"),
    )  # fmt: skip
    text, listed = cometmq.both("dlq", "list")
    assert [row["letters"] for row in listed if row["group"] == "m-unlucky"] == [5]
    assert ["m-unlucky", "5"] in [row[:2] for row in text.rows]
    text, letters = cometmq.both("dlq", "show", "m-unlucky", "--limit", 3)
    assert [letter["body"] for letter in letters] == ["letter 2", "letter 3", "letter 4"]
    assert {letter["origin"] for letter in letters} == {"m-buried"}
    assert "letter 4" in text.out

    planned = cometmq("dlq", "redrive", "m-unlucky", "--dry-run", "-o", "json").value
    assert (planned["sent"], planned["by_topic"]) == (5, {"m-buried": 5})
    one = cometmq("dlq", "redrive", "m-unlucky", "--key", "key3").out
    assert one.startswith("5 letters, 1 sent, 0 there already, 0 refused\n")
    rest = cometmq("dlq", "redrive", "m-unlucky", "-o", "json").value
    assert (rest["sent"], rest["found"]) == (4, 1)
    again = cometmq("dlq", "redrive", "m-unlucky", "-o", "json").value
    assert (again["letters"], again["sent"]) == (0, 0)
    bodies = [
        m.body for m in admin.messages.read_topic("m-buried") if "REDRIVEN_FROM" in m.properties
    ]
    assert sorted(bodies) == [b"letter %d" % number for number in range(5)]


def test_a_dead_letter_that_cannot_be_unpacked_is_shown_and_refused_and_others_go_on(
    cometmq: Program,
    admin: blocking.Admin,
    cluster: BlockingEmbeddedBroker,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def packed(_: Packing, body: bytes) -> tuple[bytes, int]:
        return body, COMPRESSED if body == b"odd" else 0

    bodies = [b"first", b"odd", b"last"]
    cluster.create_topic("m-odd", 1)
    with monkeypatch.context() as patched:
        patched.setattr(Packing, Packing.packed.__name__, packed)
        bury(cluster.namesrv, "m-odd", "m-packed", 3, lambda n: Message("m-odd", bodies[n]))
    text, letters = cometmq.both("dlq", "show", "m-packed")
    assert [letter["body"] for letter in letters] == ["first", "odd", "last"]
    assert ["unreadable" in letter for letter in letters] == [False, True, False]
    assert letters[1]["unreadable"].startswith("a compressed body cannot be unpacked: ")
    assert "a compressed body cannot be unpacked" in text.rows[2][-1]

    for more, sent in ((["--dry-run"], 2), ([], 2), ([], 0)):
        told = cometmq("dlq", "redrive", "m-packed", "-o", "json", *more, code=1).value
        assert (told["sent"], told["refused"]) == (sent, 1)
        (reason,) = told["reasons"]
        assert reason.startswith(
            "%DLQ%m-packed broker-a:0 1: a compressed body cannot be unpacked: "
        )
    again = [m for m in admin.messages.read_topic("m-odd") if "REDRIVEN_FROM" in m.properties]
    assert [m.body for m in again] == [b"first", b"last"]


def test_letters_of_a_broker_that_is_started_anew_are_waited_for() -> None:
    """No NameServer knows its topics meanwhile."""
    with EmbeddedBroker() as broker, blocking.Admin(broker.namesrv) as admin:
        broker.create_topic("m-restarted", 1)
        bury(broker.namesrv, "m-restarted", "m-patient", 80)
        queue = MessageQueue("%DLQ%m-patient", "broker-a", 0)
        options = build_parser("dlq").parse_args(["dlq", "redrive", "m-patient"])
        letters = dlq._candidates(admin, {queue: 0}, options)
        first = next(letters)
        broker.stop_broker()
        starting = threading.Timer(1.0, broker.start_broker)
        starting.start()
        try:
            assert [one.offset for one in (first, *letters)] == list(range(80))
        finally:
            starting.join()


def test_a_group_without_dead_letters_is_told(cometmq: Program) -> None:
    told = cometmq.fails("dlq", "show", "m-lucky", code=3)
    assert told == "group m-lucky has no dead letters; `cometmq dlq list` shows who has"
    assert "no topic %DLQ%m-lucky" in cometmq.fails("dlq", "redrive", "m-lucky", code=3)
    assert json.loads(cometmq("dlq", "list", "-o", "json").out) is not None
