"""Redrives and replays that are killed at random moments, and run again, send everything once.

The commands themselves are killed when COMETMQ_CHAOS_ROUNDS says how often; else what sends letters
is, without Spark around it.
"""

import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from cometmq.client.blocking import Admin, Producer
from cometmq.client.names import Message
from cometmq.spark.dead_letters import letters
from cometmq.spark.pipelines import replay_sending
from cometmq.testing import BlockingEmbeddedBroker, EmbeddedBroker

from .dead_letters import bury, messages_of

pytest.importorskip("pyspark")
ROUNDS = int(os.environ.get("COMETMQ_CHAOS_ROUNDS", "1"))
FOR_LONG = pytest.mark.skipif("COMETMQ_CHAOS_ROUNDS" not in os.environ, reason="`make chaos` does")
QUICK_ROUNDS = max(6, ROUNDS)
LETTERS = 60
REQUESTS = 3 * LETTERS
"""About as many as they take: looking for each, sending it, and what is needed around."""
MESSAGES = 400
LOCK_S = 61
RUN_S = 400.0
COMMAND = "cometmq.cli.main"
VICTIM = "tests.spark.redrive_without_spark"
SMALL = ("--master", "local[2]", "--conf", "spark.driver.memory=1g",
         "--conf", "spark.sql.shuffle.partitions=2")  # fmt: skip

pytestmark = pytest.mark.timeout(600 + 400 * ROUNDS)


@pytest.fixture
def broker() -> Iterator[BlockingEmbeddedBroker]:
    with EmbeddedBroker() as broker:
        yield broker


class Command:
    """A Python module as a process of its own."""

    def __init__(self, errors: Path, module: str, *arguments: str) -> None:
        self._errors = errors
        with errors.open("ab") as file:
            self._process = subprocess.Popen(
                [sys.executable, "-m", module, *arguments],
                stdout=subprocess.DEVNULL, stderr=file,
            )  # fmt: skip

    @property
    def is_running(self) -> bool:
        return self._process.poll() is None

    @property
    def said(self) -> str:
        return self._errors.read_text()

    def kill(self) -> None:
        """Without a warning; whatever it has started sees to itself."""
        if self.is_running:
            os.kill(self._process.pid, signal.SIGKILL)
        self._process.wait(RUN_S)

    def wait(self) -> int:
        return self._process.wait(RUN_S)


class Target:
    """A topic that something is sent to, by commands that are killed."""

    def __init__(self, broker: BlockingEmbeddedBroker, topic: str, errors: Path) -> None:
        self._broker = broker
        self._topic = topic
        self._errors = errors
        broker.create_topic(topic)

    @property
    def count(self) -> int:
        with Admin(self._broker.namesrv) as admin:
            return admin.topics.stats(self._topic).messages

    def kill(self, module: str, *arguments: str, within_s: float) -> None:
        """Run a command, and kill it while it sends; now and then before it does."""
        before = self.count
        command = Command(self._errors, module, *arguments)
        if random.random() < 0.8:
            deadline = time.monotonic() + RUN_S
            while command.is_running and self.count == before:
                assert time.monotonic() < deadline, command.said
                time.sleep(0.01)
        time.sleep(random.uniform(0, within_s))
        command.kill()

    def run(self, module: str, *arguments: str) -> None:
        command = Command(self._errors, module, *arguments)
        assert command.wait() == 0, command.said


def check_each_letter_is_there_once(broker: BlockingEmbeddedBroker, sent: Counter[str]) -> None:
    name = letters.FIRST_ID
    found = messages_of(broker.namesrv, "orders")
    assert Counter(m.properties[name] for m in found if name in m.properties) == sent


def test_who_sends_letters_and_is_killed_sends_each_once(
    broker: BlockingEmbeddedBroker, tmp_path: Path
) -> None:
    broker.create_topic("orders")
    sent: Counter[str] = Counter()
    killed = 0
    for _ in range(QUICK_ROUNDS):
        sent.update(bury(broker.namesrv, "orders", "billing", LETTERS))
        fatal = str(random.randint(1, REQUESTS))
        command = Command(tmp_path / "errors", VICTIM, broker.namesrv, "billing", fatal)
        killed += command.wait() == -signal.SIGKILL
        broker.advance(LOCK_S)
    assert killed, command.said
    assert Command(tmp_path / "errors", VICTIM, broker.namesrv, "billing", "0").wait() == 0
    check_each_letter_is_there_once(broker, sent)


@FOR_LONG
def test_a_redrive_that_is_killed_sends_each_letter_once(
    broker: BlockingEmbeddedBroker, tmp_path: Path
) -> None:
    target = Target(broker, "orders", tmp_path / "errors")
    arguments = ("spark", "redrive", "--namesrv", broker.namesrv, "--group", "billing", *SMALL)
    sent: Counter[str] = Counter()
    for _ in range(ROUNDS):
        sent.update(bury(broker.namesrv, "orders", "billing", LETTERS))
        target.kill(COMMAND, *arguments, "--rate", "50", within_s=3.0)
        broker.advance(LOCK_S)
    target.run(COMMAND, *arguments)
    check_each_letter_is_there_once(broker, sent)


@FOR_LONG
def test_a_replay_that_is_killed_sends_each_message_once(
    broker: BlockingEmbeddedBroker, tmp_path: Path
) -> None:
    broker.create_topic("orders")
    target = Target(broker, "again", tmp_path / "errors")
    with Producer(broker.namesrv, group="kill") as producer:
        for number in range(MESSAGES * ROUNDS):
            producer.send(Message("orders", b"order %d" % number))
    arguments = (
        "spark", "replay", "--namesrv", broker.namesrv, "--from-topics", "--topic", "orders",
        "--to", "again", "--checkpoint", str(tmp_path / "checkpoint"), *SMALL, "--rate",
    )  # fmt: skip
    for _ in range(ROUNDS):
        target.kill(COMMAND, *arguments, "60", within_s=3.0)
    target.run(COMMAND, *arguments, "100000")
    found = messages_of(broker.namesrv, "again")
    places = Counter(message.properties[replay_sending.FROM] for message in found)
    assert set(places.values()) == {1}
    assert len(places) == MESSAGES * ROUNDS
