"""The Python client at servers that restart, refuse, encrypt or want to know who is there.

Each test has servers of its own.
"""

from __future__ import annotations

import asyncio
import dataclasses
import itertools
import json
import random
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path

import pytest
import trustme
from cryptography.hazmat.primitives import serialization

from cometmq.client import (
    Admin,
    ClientError,
    Credentials,
    Message,
    NoPermission,
    Producer,
    PushConsumer,
    SendFailed,
    TopicNotFound,
    Unreachable,
)
from cometmq.client import cluster as clusters
from cometmq.transport.tls import client_context
from interop import comet, rocketmq, systems
from interop.python_client import CONFIG, PythonBench, bodies, numbered, on_loop, until
from interop.rocketmq import (
    HOST,
    Broker,
    ConfigValue,
    NameServer,
    ServerProcess,
    cluster_info,
)
from interop.systems import SYSTEMS, Cluster, System

CLIENTS = 6
SENDERS = 8
beside = asyncio.to_thread


@pytest.fixture
def bench(system: System, tmp_path: Path) -> Iterator[PythonBench]:
    """At a cluster of this test alone."""
    with systems.running(system, tmp_path, CONFIG) as cluster, PythonBench(cluster) as started:
        yield started


# Restarts


@on_loop
async def test_nothing_acknowledged_is_lost_when_the_broker_is_killed(bench: PythonBench) -> None:
    topic, group = await bench.topic("Killed"), bench.name("group")
    broker = bench.cluster.broker
    stored: list[bytes] = []
    failed: list[bytes] = []
    is_over = asyncio.Event()
    numbers = itertools.count()

    async def send_on(producer: Producer) -> None:
        while not is_over.is_set():
            body = b"%d" % next(numbers)
            try:
                await producer.send(Message(topic, body))
                stored.append(body)
            except ClientError:
                failed.append(body)
                await asyncio.sleep(0.05)

    async def until_further(count: int) -> None:
        wanted = len(stored) + count
        await until(lambda: len(stored) >= wanted, f"{count} more are stored")

    async with (
        bench.push(group, topic) as inbox,
        Producer(bench.where, group=bench.name("producer"), timeout_s=3.0) as producer,
    ):
        senders = [asyncio.create_task(send_on(producer)) for _ in range(SENDERS)]
        await until_further(200)
        await beside(broker.kill)
        await until(lambda: len(failed) >= SENDERS, "nobody can send")
        await beside(broker.start)
        await until_further(200)
        is_over.set()
        await asyncio.gather(*senders)
        await inbox.wait_for_bodies(stored)
        await until(lambda: _is_consumed(bench, group, topic), "the group is at the end")

    received = Counter(inbox.bodies)
    assert received.keys() >= set(stored)
    assert received.keys() <= {*stored, *failed}
    # What was committed before the kill, or came after it, came once.
    assert sum(count > 1 for count in received.values()) < len(stored) // 2


async def _is_consumed(bench: PythonBench, group: str, topic: str) -> bool:
    return sum((await bench.committed(group, topic)).values()) == await bench.stored(topic)


@on_loop
async def test_an_orderly_consumer_keeps_its_order_over_a_restart(bench: PythonBench) -> None:
    topic, group = await bench.topic("OrderlyRestart", 1), bench.name("group")
    before, after = numbered(topic, 50, "before"), numbered(topic, 50, "after")
    async with bench.push(group, topic, orderly=True) as inbox:
        await bench.send(*before)
        await inbox.wait_for(50)
        await bench.wait_until_consumed(group, topic, 50)
        await beside(bench.cluster.broker.stop)
        await beside(bench.cluster.broker.start)
        for message in after:
            await send_at_last(bench, message)
        await inbox.wait_for_bodies(bodies(after))
        await until(lambda: _is_consumed(bench, group, topic), "the group is at the end")
    # A send that was tried again may be stored twice, one behind the other.
    assert list(dict.fromkeys(inbox.bodies)) == bodies([*before, *after])


async def send_at_last(bench: PythonBench, message: Message) -> None:
    async def sent() -> bool:
        try:
            await bench.producer.send(message)
        except ClientError:
            return False
        return True

    await until(sent, "the broker takes messages again")


# NameServers


def test_one_of_two_name_servers_is_enough(system: System, tmp_path: Path) -> None:
    with ExitStack() as stack:
        servers = [system.name_server(tmp_path / f"namesrv-{number}") for number in range(2)]
        for server in servers:
            stack.callback(server.kill)
            server.start()
        addresses = ";".join(server.address for server in servers)
        config = {**systems.CLUSTER_CONFIG, **CONFIG}
        broker = system.broker(tmp_path / "broker", tmp_path / "store", addresses, config=config)
        stack.callback(broker.kill)
        broker.start()
        where = clusters.Cluster(addresses, heartbeat_s=1.0, route_refresh_s=1.0)
        with PythonBench(Cluster(system, servers[0], broker), where) as bench:
            bench.run(send_and_receive_without(bench, servers[1]))


async def send_and_receive_without(bench: PythonBench, server: NameServer) -> None:
    topic = await bench.topic("TwoNameServers")
    async with bench.push(bench.name("group"), topic) as inbox:
        await bench.send(Message(topic, b"both are there"))
        await beside(server.kill)
        await bench.send(Message(topic, b"one is gone"))
        # Each begins with one of the two, by chance.
        for number in range(CLIENTS):
            async with Producer(bench.where, group=bench.name("late")) as producer:
                await producer.send(Message(topic, b"late-%d" % number))
        received = await inbox.wait_for(2 + CLIENTS)
    late = [b"late-%d" % number for number in range(CLIENTS)]
    assert sorted(bodies(received)) == sorted([b"both are there", b"one is gone", *late])


# Topics that nobody made


@pytest.mark.full
def test_a_topic_that_nobody_made_is_refused_where_none_are_made(
    system: System, tmp_path: Path
) -> None:
    with (
        systems.running(system, tmp_path, {"autoCreateTopicEnable": False}) as strict,
        PythonBench(strict) as bench,
    ):
        bench.run(send_to_topics_made_and_not(bench))


async def send_to_topics_made_and_not(bench: PythonBench) -> None:
    with pytest.raises(TopicNotFound, match="Nowhere"):
        await bench.producer.send(Message("Nowhere", b"lost"))
    somewhere = await bench.topic("Somewhere")
    await bench.producer.send(Message(somewhere, b"kept"))
    assert bodies(await bench.read_all(somewhere)) == [b"kept"]


# TLS


class EncryptedServer(rocketmq.JvmServer):
    """RocketMQ's: it takes settings of TLS as properties of the JVM."""

    settings: Mapping[str, ConfigValue] = {}

    def _command(self, conf: Path) -> list[str]:
        java, *arguments = super()._command(conf)
        plain = [item for item in arguments if not item.startswith("-Dtls.")]
        settings = [f"-D{name}={value}" for name, value in self.settings.items()]
        return [java, "-Dtls.test.mode.enable=false", *settings, *plain]


def with_tls(system: System, tls: Mapping[str, ConfigValue]) -> System:
    """The same servers, but they have a certificate. Plain clients are still served."""
    if system.name == "cometmq":

        class CometNameServer(comet.NameServer):
            def start(self) -> None:
                config = {"listenPort": self.port, "bindAddress": HOST, **tls}
                self._server.start(config, lambda: cluster_info(self.address) is not None)

        return System(system.name, CometNameServer, comet.Broker)

    class Server(EncryptedServer):
        settings = tls

    class RocketNameServer(NameServer):
        def _process(self, home: Path) -> ServerProcess:
            return Server("org.apache.rocketmq.namesrv.NamesrvStartup", home)

    class RocketBroker(Broker):
        def _process(self, home: Path) -> ServerProcess:
            return Server("cometmq.interop.BrokerMain", home)

    return System(system.name, RocketNameServer, RocketBroker)


@pytest.fixture
def certificate(tmp_path: Path) -> dict[str, ConfigValue]:
    """Settings of a server; `authority.pem` beside it has signed it."""
    authority = trustme.CA()
    issued = authority.issue_cert(HOST)
    authority.cert_pem.write_to_path(tmp_path / "authority.pem")
    chain, key = tmp_path / "chain.pem", tmp_path / "key.pem"
    chain.write_bytes(b"".join(pem.bytes() for pem in issued.cert_chain_pems))
    # Java reads private keys in this form only.
    private = serialization.load_pem_private_key(issued.private_key_pem.bytes(), None)
    key.write_bytes(
        private.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )
    return {"tls.server.certPath": str(chain), "tls.server.keyPath": str(key)}


def test_a_client_speaks_tls_with_servers_that_it_trusts(
    system: System, tmp_path: Path, certificate: dict[str, ConfigValue]
) -> None:
    stranger = tmp_path / "stranger.pem"
    trustme.CA().cert_pem.write_to_path(stranger)
    with systems.running(with_tls(system, certificate), tmp_path, certificate) as cluster:
        where = clusters.Cluster(
            cluster.namesrv.address, tls=client_context(tmp_path / "authority.pem")
        )
        with PythonBench(cluster, where) as bench:
            bench.run(send_and_receive(bench))
            distrustful = dataclasses.replace(where, tls=client_context(stranger))
            bench.run(assert_unreachable(distrustful))


async def send_and_receive(bench: PythonBench) -> None:
    topic = await bench.topic("Way")
    messages = [*numbered(topic, 50), Message(topic, random.Random(0).randbytes(1 << 20))]
    async with bench.push(bench.name("group"), topic) as inbox:
        await bench.send(*messages)
        received = await inbox.wait_for(len(messages))
    assert sorted(bodies(received)) == sorted(bodies(messages))


async def assert_unreachable(where: clusters.Cluster) -> None:
    async with Producer(where, group="Py-distrustful") as producer:
        with pytest.raises(Unreachable, match="CERTIFICATE_VERIFY_FAILED"):
            await producer.send(Message("Py-Anything", b"never sent"))


# Access control

USER, SECRET = "comet", "hyakutake"
WHO = "org.apache.rocketmq.auth.authentication.provider."
ACCESS_CONTROL: Mapping[str, ConfigValue] = {
    "authenticationEnabled": True,
    "authenticationProvider": f"{WHO}DefaultAuthenticationProvider",
    "authenticationMetadataProvider": f"{WHO}LocalAuthenticationMetadataProvider",
    "initAuthenticationUser": json.dumps({"username": USER, "password": SECRET}),
    "innerClientAuthenticationCredentials": json.dumps({"accessKey": USER, "secretKey": SECRET}),
}


@pytest.mark.full
@pytest.mark.skipif(SYSTEMS["rocketmq"] not in systems.chosen(), reason="of RocketMQ alone")
def test_rocketmq_knows_a_client_by_its_signature(tmp_path: Path) -> None:
    with systems.running(SYSTEMS["rocketmq"], tmp_path, ACCESS_CONTROL) as cluster:
        where = clusters.Cluster(cluster.namesrv.address, credentials=Credentials(USER, SECRET))
        with PythonBench(cluster, where) as bench:
            bench.run(send_and_receive(bench))
            for stranger in (None, Credentials(USER, "guess"), Credentials("nobody", SECRET)):
                bench.run(assert_refused(bench, stranger))


async def assert_refused(bench: PythonBench, stranger: Credentials | None) -> None:
    topic = await bench.topic("Guarded", 1)
    where = dataclasses.replace(bench.where, credentials=stranger)
    async with Producer(where, group=bench.name("stranger")) as producer, Admin(where) as admin:
        with pytest.raises(SendFailed) as refused:
            await producer.send(Message(topic, b"never taken"))
        with pytest.raises(NoPermission):
            await admin.topics.create(bench.name("NeverMade"))
        with pytest.raises(NoPermission):
            async with PushConsumer(where, group=bench.name("g"), topics=topic, handler=print):
                pass
    assert isinstance(refused.value.__cause__, NoPermission)
    assert await bench.stored(topic) == 0
