"""`cometmq send`, `consume`, `tail` and `bench` against a real broker, with real pipes."""

import contextlib
import json
import os
import pty
import re
import signal
import subprocess
import time
from pathlib import Path

import pytest

from cometmq.client import Message, MessageQueue, blocking
from cometmq.testing import BlockingEmbeddedBroker

from .program import MAIN, WAIT_S, Program, next_line, running


def bodies(admin: blocking.Admin, topic: str) -> list[bytes]:
    return sorted(message.body for message in admin.messages.read_topic(topic))


# -- send ----------------------------------------------------------------------------------------


def test_a_message_is_sent_with_all_that_it_may_have(
    cometmq: Program, cluster: BlockingEmbeddedBroker, admin: blocking.Admin
) -> None:
    cluster.create_topic("s-one", 1)
    marks = ("-k", "a", "-k", "b", "-t", "T", "-p", "shop=7", "--order-key", "o")
    sent = cometmq("send", "s-one", "grüße", *marks, "-o", "json").value
    assert (sent["topic"], sent["queue"], sent["offset"], sent["status"]) == ("s-one", 0, 0, "OK")
    text = cometmq("send", "s-one", "more").out
    assert re.fullmatch(r"[0-9A-F]{32}  broker-a, queue 0, offset 1\n", text)
    first = next(iter(admin.messages.read_topic("s-one")))
    assert first.message_id == sent["message_id"]
    assert (first.body.decode(), first.keys, first.tags) == ("grüße", ["a", "b"], "T")
    assert (first.properties["shop"], first.sharding_key) == ("7", "o")


def test_lines_of_stdin_are_sent_as_they_come(
    cometmq: Program, cluster: BlockingEmbeddedBroker, admin: blocking.Admin
) -> None:
    cluster.create_topic("s-lines", 1)
    with running(cometmq.start("send", "s-lines", "-", "-o", "json")) as sending:
        assert sending.stdin is not None
        for number, line in enumerate([b"one\n", b"\ntwo\r\n", b"three"]):
            sending.stdin.write(line)
            sending.stdin.flush()
            if number < 2:
                assert json.loads(next_line(sending))["offset"] == number
        sending.stdin.close()
        assert json.loads(next_line(sending))["offset"] == 2
        assert sending.wait(WAIT_S) == 0
    assert bodies(admin, "s-lines") == [b"one", b"three", b"two"]


def test_files_are_sent_whole_or_line_by_line(
    cometmq: Program, cluster: BlockingEmbeddedBroker, admin: blocking.Admin, tmp_path: Path
) -> None:
    cluster.create_topic("s-files", 1)
    file = tmp_path / "orders.txt"
    file.write_bytes(b"a\nb\n")
    cometmq("send", "s-files", "--file", file)
    told = cometmq("send", "s-files", "--lines", file, "--count", 2, "-q")
    assert re.fullmatch(r"4 sent, 0 failed, \d+\.\d s, [\d,]+/s\n", told.out)
    assert bodies(admin, "s-files") == [b"a", b"a", b"a\nb\n", b"b", b"b"]
    quiet = cometmq("send", "s-files", "x", "--count", 3, "-q", "-o", "json").value
    assert (quiet["sent"], quiet["failed"]) == (3, 0)


def test_a_rate_is_kept(cometmq: Program, cluster: BlockingEmbeddedBroker) -> None:
    cluster.create_topic("s-slow", 1)
    told = cometmq("send", "s-slow", "x", "--count", 6, "--rate", 10, "-q", "-o", "json").value
    assert told["sent"] == 6
    assert told["seconds"] >= 0.5


def test_a_message_comes_later(
    cometmq: Program, cluster: BlockingEmbeddedBroker, admin: blocking.Admin
) -> None:
    cluster.create_topic("s-later", 1)
    cometmq("send", "s-later", "soon", "--delay", "1s")
    began = time.monotonic()
    with running(cometmq.start("tail", "s-later", "-f", "--since", "1m", "--raw")) as following:
        assert next_line(following) == "soon\n"
    assert time.monotonic() - began < WAIT_S
    message = next(iter(admin.messages.read_topic("s-later")))
    assert message.store_timestamp - message.born_timestamp >= 900


@pytest.mark.parametrize(
    ("arguments", "code", "told"),
    [
        (("s-no",), 2, "give one of BODY, `-` (lines of stdin), --file and --lines"),
        (("s-no", "x", "--file", "y"), 2, "give one of BODY"),
        (("s-no", ""), 2, "without a body"),
        (("s-no", "x", "-p", "KEYS=k"), 2, "RocketMQ uses KEYS itself"),
        (("s-no", "--file", "/no/such"), 1, "No such file or directory: '/no/such'"),
        (("no/name", "x"), 2, "topic"),
    ],
)
def test_what_cannot_be_sent_is_told(
    cometmq: Program, arguments: tuple[str, ...], code: int, told: str
) -> None:
    assert told in cometmq.fails("send", *arguments, code=code)


def test_a_topic_without_permission_takes_nothing(cometmq: Program, admin: blocking.Admin) -> None:
    admin.topics.create("s-closed", queues=1, permission=4)
    told = cometmq.fails("send", "s-closed", "x", "--count", 1000, code=4)
    assert "change the topic's permission" in told


# -- consume -------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def shelf(cluster: BlockingEmbeddedBroker, producer: blocking.Producer) -> str:
    """Six messages in two queues; tags T0 and T1, a property `n`."""
    cluster.create_topic("s-shelf", 2)
    for number in range(6):
        producer.send(
            Message("s-shelf", b"book %d" % number, tags=f"T{number % 2}",
                    properties={"n": str(number)}),
            queue=MessageQueue("s-shelf", "broker-a", number // 3),
        )  # fmt: skip
    return "s-shelf"


def test_what_was_printed_is_consumed(cometmq: Program, admin: blocking.Admin, shelf: str) -> None:
    first = cometmq("consume", shelf, "-g", "s-readers", "--max", 2, "-o", "json").values
    assert len(first) == 2
    rest = cometmq("consume", shelf, "-g", "s-readers", "--idle", "3s", "-o", "json").values
    assert sorted(one["body"] for one in first + rest) == [f"book {n}" for n in range(6)]
    assert admin.groups.progress("s-readers", shelf).lag == 0


def test_what_is_not_acknowledged_comes_again(
    cometmq: Program, admin: blocking.Admin, shelf: str
) -> None:
    for _ in range(2):
        text = cometmq("consume", shelf, "-g", "s-lookers", "--max", 6, "--no-ack").out
        assert len(text.splitlines()) == 6
        assert re.search(r"broker-a:1@2 \[T1\]  book 5\n", text)
    assert admin.offsets.committed("s-lookers", shelf) == {}


def test_messages_are_chosen_by_tag_and_by_sql(cometmq: Program, shelf: str) -> None:
    tagged = cometmq("consume", shelf, "-g", "s-tags", "--tags", "T1", "--max", 3, "--raw").out
    assert sorted(tagged.splitlines()) == ["book 1", "book 3", "book 5"]
    chosen = cometmq("consume", shelf, "-g", "s-sql", "--sql", "n > 3", "--max", 2, "--raw").out
    assert sorted(chosen.splitlines()) == ["book 4", "book 5"]
    assert "mend the filter" in cometmq.fails(
        "consume", shelf, "-g", "s-bad", "--sql", "n >", code=1
    )


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_ctrl_c_ends_a_consumer_in_order(
    cometmq: Program, admin: blocking.Admin, shelf: str, number: signal.Signals
) -> None:
    group = f"s-ended-{number.name}"
    with running(cometmq.start("consume", shelf, "-g", group)) as consuming:
        for _ in range(6):
            assert "book" in next_line(consuming)
        consuming.send_signal(number)
        assert consuming.wait(WAIT_S) == 0
        assert consuming.stderr is not None
        assert consuming.stderr.read() == b""
    assert admin.groups.progress(group, shelf).lag == 0


# -- tail ----------------------------------------------------------------------------------------


def test_the_last_messages_are_shown_without_a_group(
    cometmq: Program, admin: blocking.Admin, shelf: str
) -> None:
    before = admin.groups.names()
    last = cometmq("tail", shelf, "--last", 2, "-o", "json").values
    assert [message["body"] for message in last] == ["book 4", "book 5"]
    assert len(cometmq("tail", shelf).out.splitlines()) == 6
    assert cometmq("tail", shelf, "--since", "1h", "--tags", "T0", "--raw").out.splitlines() == [
        "book 0", "book 2", "book 4",
    ]  # fmt: skip
    assert admin.groups.names() == before
    assert "nowhere" in cometmq.fails("tail", "nowhere", code=3)


def test_tail_follows_all_queues_until_ctrl_c(
    cometmq: Program, cluster: BlockingEmbeddedBroker, producer: blocking.Producer
) -> None:
    cluster.create_topic("s-river", 20)  # More than an admin asks at once.
    producer.send(Message("s-river", b"before"))
    with running(cometmq.start("tail", "s-river", "-f", "--last", 1, "--raw")) as following:
        assert next_line(following) == "before\n"
        for number in range(20):
            queue = MessageQueue("s-river", "broker-a", number)
            producer.send(Message("s-river", b"drop %d" % number), queue=queue)
            assert next_line(following) == f"drop {number}\n"
        following.send_signal(signal.SIGINT)
        assert following.wait(WAIT_S) == 0
        assert following.stderr is not None
        assert following.stderr.read() == b""


# -- bench ---------------------------------------------------------------------------------------


def test_bench_measures_and_leaves_nothing_behind(cometmq: Program, admin: blocking.Admin) -> None:
    text, told = cometmq.both("bench", "--messages", 300, "--size", 100, "--queues", 2)
    for phase in (told["send"], told["consume"]):
        assert phase["messages"] == 300
        assert phase["messages_per_s"] > 0
    latency = told["send"]["latency_ms"]
    assert 0 < latency["p50"] <= latency["p99"] <= latency["max"]
    assert "messages per s" in text.out
    assert not [name for name in admin.topics.names(internal=True) if "BENCH" in name]
    assert not [name for name in admin.groups.names() if "BENCH" in name]


def test_bench_takes_a_topic_that_is_there(
    cometmq: Program, cluster: BlockingEmbeddedBroker, admin: blocking.Admin
) -> None:
    cluster.create_topic("s-mine", 1)
    cometmq("send", "s-mine", "not yours")
    how = ("--in-flight", 1, "--no-consume")
    told = cometmq("bench", "--topic", "s-mine", "--messages", 20, *how, "-o", "json").value
    assert told["send"]["messages"] == 20
    assert "consume" not in told
    assert len(bodies(admin, "s-mine")) == 21
    assert "nowhere" in cometmq.fails("bench", "--topic", "nowhere", code=3)


def test_a_terminal_sees_progress(cometmq: Program) -> None:
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [*MAIN, "bench", "--messages", "60", "--rate", "100"],
        stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=theirs, env=cometmq.env,
    )  # fmt: skip
    os.close(theirs)
    with running(process):
        seen = b""
        with contextlib.suppress(OSError):  # The end of a terminal is an error.
            while piece := os.read(ours, 4096):
                seen += piece
        assert process.wait(WAIT_S) == 0
    os.close(ours)
    assert re.search(rb"\[#+\.*\] \d+ sent, \d+/s of 60", seen)
    assert seen.endswith(b"\x1b[K")
