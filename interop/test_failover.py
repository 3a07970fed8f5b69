"""Two name servers and two brokers, of which one at a time dies under running Java clients.

The short set asks CometMQ only; the full set also asks RocketMQ, so that we know what to ask for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TypeVar

import pytest

from interop import systems
from interop.java_client import (
    NEWEST,
    Admin,
    ClientError,
    Events,
    JavaClient,
    Message,
    Producer,
    PushConsumer,
    bodies,
    body,
    wait_until,
)
from interop.rocketmq import Broker, JsonObject, NameServer, cluster_info
from interop.systems import System

BROKERS = ("broker-a", "broker-b")
QUEUES_PER_BROKER = 2
SEND_INTERVAL_MS = 20
SENDS = 40
# How often a broker tells its name servers of itself, at its fastest.
REGISTER_PERIOD_MS = 10_000

ATTEMPTS_MAX = 20

T = TypeVar("T")

pytestmark = pytest.mark.parametrize(
    "system",
    [
        pytest.param(system, marks=[pytest.mark.full] if system.name == "rocketmq" else [])
        for system in systems.chosen()
    ],
    indirect=True,
    ids=lambda system: system.name,
)


@dataclass(frozen=True)
class Pairs:
    """Both name servers and both brokers, running, with a client process that knows them."""

    name_servers: list[NameServer]
    brokers: list[Broker]
    client: JavaClient

    @property
    def addresses(self) -> str:
        return ";".join(server.address for server in self.name_servers)

    def topic(self, name: str) -> str:
        with Admin(self.client, self.addresses) as admin:
            for broker in self.brokers:
                admin.create_topic(name, broker.address, QUEUES_PER_BROKER)
        return name

    def producer(self, group: str) -> Producer:
        return Producer(self.client, self.addresses, group)

    def consumer(self, group: str, topic: str) -> PushConsumer:
        return PushConsumer(self.client, self.addresses, group, topic)

    @contextmanager
    def away(self, server: NameServer) -> Iterator[None]:
        """Kill a name server; at the end it is back and knows both brokers."""
        server.kill()
        try:
            yield
        finally:
            server.start()
            self._wait_until_known(server)

    def _wait_until_known(self, server: NameServer) -> None:

        def known() -> bool:
            info = cluster_info(server.address) or b""
            return all(f'"{broker.address}"'.encode() in info for broker in self.brokers)

        wait_until(known, f"both brokers are registered at {server.address}")


@pytest.fixture(scope="module")
def pairs(system: System, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pairs]:
    """One set for all tests: each brings back what it killed."""
    tmp_path = tmp_path_factory.mktemp("pairs")
    with ExitStack() as stack:
        name_servers = [system.name_server(tmp_path / f"namesrv-{n}") for n in range(2)]
        for server in name_servers:
            stack.callback(server.kill)
            server.start()
        addresses = ";".join(server.address for server in name_servers)
        brokers = [new_broker(system, tmp_path / name, name, addresses) for name in BROKERS]
        for broker in brokers:
            stack.callback(broker.kill)
            broker.start()
        client = stack.enter_context(JavaClient(NEWEST, tmp_path / "client"))
        yield Pairs(name_servers, brokers, client)


def new_broker(system: System, home: Path, name: str, addresses: str) -> Broker:
    config = {
        **systems.CLUSTER_CONFIG,
        "brokerName": name,
        "registerNameServerPeriod": REGISTER_PERIOD_MS,
    }
    return system.broker(home, home / "store", addresses, config=config)


def wait_for_sends(stream: Events, enough: Callable[[list[JsonObject]], bool]) -> list[JsonObject]:
    """Wait until what was sent is enough; no send may have failed."""
    events = stream.wait_until(lambda events: enough(events) or has_failed(events))
    assert not has_failed(events), events[-1]
    return events


def wait_for_more_sends(stream: Events) -> list[JsonObject]:
    start = len(stream.so_far())
    return wait_for_sends(stream, lambda sends: len(sends) >= start + SENDS)[start:]


def has_failed(events: list[JsonObject]) -> bool:
    return any(event["event"] == "failed" for event in events)


def used(sends: list[JsonObject]) -> set[str]:
    return {send["queue"]["brokerName"] for send in sends}


def texts(sends: list[JsonObject]) -> list[bytes]:
    return [send["body"].encode() for send in sends]


def test_clients_go_on_and_new_ones_start_while_a_name_server_is_away(pairs: Pairs) -> None:
    topic = pairs.topic("OneNameServer")
    with pairs.producer("producer") as producer, pairs.consumer("group", topic) as consumer:
        stream = producer.start_stream(topic, SEND_INTERVAL_MS)
        wait_for_sends(stream, lambda sends: used(sends) == set(BROKERS))

        # In turn, since a client asks either and stays with the one that answered.
        for number, server in enumerate(pairs.name_servers):
            with pairs.away(server):
                wait_for_more_sends(stream)
                assert_new_clients_work(pairs, f"New{number}", topic)

        producer.stop_stream()
        expected = [*texts(wait_for_sends(stream, bool)), b"New0", b"New1"]
        received = bodies(consumer.wait_for_bodies(expected))
    assert sorted(received) == sorted(expected)


def assert_new_clients_work(pairs: Pairs, name: str, known_topic: str) -> None:
    """They send, consume what is there, and make a topic of their own."""
    own_topic = pairs.topic(f"{name}Topic")
    text = name.encode()
    for topic in (own_topic, known_topic):
        with pairs.producer(f"{name}-producer-{topic}") as producer:
            until_reached(partial(producer.send, Message(topic, text)))
        with until_reached(partial(pairs.consumer, f"{name}-{topic}", topic)) as consumer:
            consumer.wait_for_bodies([text])


def until_reached(act: Callable[[], T]) -> T:
    """A 5.x client asks one name server, by lot, and gives up when that one is away."""
    for _ in range(ATTEMPTS_MAX):
        try:
            return act()
        except ClientError as error:
            if "RemotingConnectException" not in error.text:
                raise
    raise TimeoutError(f"no name server reached in {ATTEMPTS_MAX} attempts")


def test_a_killed_broker_is_done_without_and_used_again_when_it_is_back(pairs: Pairs) -> None:
    topic = pairs.topic("OneBroker")
    dying = pairs.brokers[0]
    with pairs.producer("producer") as producer, pairs.consumer("early", topic) as early:
        stream = producer.start_stream(topic, SEND_INTERVAL_MS)
        before = wait_for_sends(
            stream, lambda sends: used(sends) == set(BROKERS) and len(sends) >= SENDS
        )
        dying.kill()
        # The first may have been on its way to us, acknowledged by the broker that is now dead.
        away = wait_for_more_sends(stream)[1:]
        assert used(away) == {BROKERS[1]}
        early.wait_for_bodies(texts(away))

        with pairs.consumer("late", topic) as late:
            late.wait_for_bodies(texts(on_broker(before + away, BROKERS[1])))
            assert {message["brokerName"] for message in late.received()} == {BROKERS[1]}

            dying.start()
            back = len(stream.so_far())
            wait_for_sends(stream, lambda sends: used(sends[back:]) == set(BROKERS))
            producer.stop_stream()
            sends = wait_for_sends(stream, bool)
            # With what the dead broker had stored and nobody of this group had consumed.
            late.wait_for_bodies(texts(sends))
            early.wait_for_bodies(texts(sends))
    kept = {body(message) for message in late.received() if message["brokerName"] == BROKERS[0]}
    assert kept >= set(texts(on_broker(before, BROKERS[0])))


def on_broker(sends: list[JsonObject], name: str) -> list[JsonObject]:
    return [send for send in sends if send["queue"]["brokerName"] == name]
