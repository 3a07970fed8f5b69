"""A broker inside a test: there at once, gone without a trace, and taken apart in between."""

import asyncio
import re
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import pytest

from cometmq.settings import BadSetting
from cometmq.testing import EmbeddedBroker, ManualClock
from cometmq.testing.embedded import MEMORY
from cometmq.transport.errors import ConnectFailed, ConnectionClosed
from tests.broker.brokers import GROUP, TOPIC, Client, number
from tests.testing.clients import brokers_of, cluster_of, connected, route_of

FIRST_MESSAGE_S_MAX = 0.3
ROUNDS = 9


async def send(broker: EmbeddedBroker, body: bytes = b"hello", at: int = 0, **how: Any) -> None:
    async with connected(broker.addresses[at]) as client:
        answer = await client.send(body=body, **how)
        assert answer.code == 0, answer.remark


async def bodies(broker: EmbeddedBroker, topic: str = TOPIC) -> list[bytes]:
    async with connected(broker.address) as client:
        return [message.body for message in await client.pulled(topic)]


# -- entering and leaving ------------------------------------------------------------------------


async def test_on_entry_broker_and_topics_are_in_the_routes() -> None:
    async with EmbeddedBroker() as broker:
        assert await cluster_of(broker.namesrv) == {"broker-a": broker.address}
        assert await brokers_of(broker.namesrv, "TBW102") == {"broker-a": broker.address}
        assert await route_of(broker.namesrv, TOPIC) is None


async def test_the_first_message_is_acknowledged_within_300_ms(
    record_property: Callable[[str, object], None],
) -> None:
    took_s = []
    for _ in range(ROUNDS):
        begun = time.perf_counter()
        async with EmbeddedBroker() as broker:
            await send(broker)
            took_s.append(time.perf_counter() - begun)
    median_s = statistics.median(took_s)
    record_property("first_message_ms", round(median_s * 1000, 1))
    print(f"first message after {median_s * 1000:.1f} ms (median of {ROUNDS})")
    assert median_s < FIRST_MESSAGE_S_MAX


def test_leaving_leaves_nothing_behind() -> None:
    """In a process of its own: in this one, brokers and threads of other tests come and go."""
    file = Path(__file__).with_name("leavings.py")
    ran = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", str(file)],
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stdout + ran.stderr


async def test_a_given_directory_is_kept_and_taken_up_again(tmp_path: Path) -> None:
    async with EmbeddedBroker(directory=tmp_path) as broker:
        await send(broker, b"first")
    assert (tmp_path / "broker-a" / "commitlog").is_dir()
    async with EmbeddedBroker(directory=tmp_path) as broker:
        assert broker.directory == tmp_path
        assert await bodies(broker) == [b"first"]


@pytest.mark.skipif(not MEMORY.is_dir(), reason="this system has no directory in memory")
async def test_in_memory_means_a_directory_in_memory_that_goes_away() -> None:
    async with EmbeddedBroker(in_memory=True) as broker:
        await send(broker)
        directory = broker.directory
        assert directory.is_relative_to(MEMORY)
    assert not directory.exists()


async def test_without_a_directory_in_memory_an_ordinary_one_serves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cometmq.testing.embedded.MEMORY", tmp_path / "none")
    async with EmbeddedBroker(in_memory=True) as broker:
        await send(broker)
        assert not broker.directory.is_relative_to(tmp_path)


async def test_settings_are_rocketmqs_own_and_reach_every_broker() -> None:
    settings = {"autoCreateTopicEnable": False}
    async with EmbeddedBroker(settings=settings, brokers=2, flush="sync") as broker:
        for address in broker.addresses:
            async with connected(address) as client:
                told = (await client.ask(26)).body.decode()
                assert "autoCreateTopicEnable=false" in told
                assert "flushDiskType=SYNC_FLUSH" in told
                assert (await client.send("unknown")).code == 17


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"brokers": 0}, "brokers=0: 1 to 16"),
        ({"flush": "later"}, "flush='later': 'async' or 'sync'"),
        ({"directory": "here", "in_memory": True}, "exclude each other"),
        ({"settings": {"listenPort": 5}}, "listenPort is not yours to set here: ports are free"),
    ],
)
def test_options_that_make_no_sense_are_refused(options: dict[str, Any], complaint: str) -> None:
    with pytest.raises(ValueError, match=re.escape(complaint)):
        EmbeddedBroker(**options)


async def test_what_is_not_running_says_so() -> None:
    embedded = EmbeddedBroker()
    with pytest.raises(RuntimeError, match="not running"):
        _ = embedded.namesrv
    async with embedded as broker:
        with pytest.raises(RuntimeError, match="running already"):
            await embedded.__aenter__()
        with pytest.raises(RuntimeError, match="through_proxy=True"):
            broker.proxy()
        with pytest.raises(IndexError, match="no broker 1: there are 1"):
            await broker.stop_broker(1)
        with pytest.raises(RuntimeError, match="running already"):
            await broker.start_broker()
    with pytest.raises(RuntimeError, match="not running"):
        _ = embedded.address


async def test_it_can_be_entered_again() -> None:
    embedded = EmbeddedBroker()
    for _ in range(2):
        async with embedded as broker:
            await send(broker)
            assert await bodies(broker) == [b"hello"]


# -- topics --------------------------------------------------------------------------------------


async def test_a_new_topic_is_in_the_routes_of_all_brokers_at_once() -> None:
    async with EmbeddedBroker(brokers=3) as broker:
        await broker.create_topic(TOPIC, 6, attributes={"message.type": "DELAY"})
        route = await route_of(broker.namesrv, TOPIC)
        assert route is not None
        assert sorted(b.broker_addrs[0] for b in route.broker_datas) == sorted(broker.addresses)
        assert {q.write_queue_nums for q in route.queue_datas} == {6}


async def test_a_topic_that_cannot_be_is_refused_with_its_reason() -> None:
    async with EmbeddedBroker() as broker:
        with pytest.raises(ValueError, match=r"topic TBW102: .*conflict with system topic"):
            await broker.create_topic("TBW102")
        await broker.stop_broker()
        with pytest.raises(RuntimeError, match="no broker is running"):
            await broker.create_topic(TOPIC)


# -- taking parts away ---------------------------------------------------------------------------


@pytest.mark.parametrize("abrupt", [False, True])
@pytest.mark.parametrize("flush", ["async", "sync"])
async def test_a_restarted_broker_is_where_it_was_and_has_what_it_had(
    flush: Literal["async", "sync"], abrupt: bool
) -> None:
    async with EmbeddedBroker(flush=flush) as broker:
        await broker.create_topic(TOPIC)
        await send(broker, b"before")
        addresses = broker.addresses
        await broker.restart(abrupt=abrupt)
        assert broker.addresses == addresses
        assert await brokers_of(broker.namesrv, TOPIC) == {"broker-a": broker.address}
        await send(broker, b"after")
        assert await bodies(broker) == [b"before", b"after"]


async def progress(client: Client) -> None:
    """A group that has come to offset 1."""
    await client.send()
    await client.heartbeat("me", GROUP)
    assert (await client.commit(1)).code == 0
    assert await client.offset_of() == 1


async def test_an_abrupt_stop_breaks_connections_and_leaves_the_store_to_recovery() -> None:
    async with EmbeddedBroker() as broker:
        async with connected(broker.address) as client:
            await progress(client)
            held = asyncio.ensure_future(client.arrival(TOPIC, offset=1))
            await client.send(queue_id=1)
            await broker.stop_broker(abrupt=True)
            with pytest.raises(ConnectionClosed):
                await held
        assert (broker.directory / "broker-a" / "abort").exists()
        assert await cluster_of(broker.namesrv) == {}
        await broker.start_broker()
        assert await bodies(broker) == [b"hello"]
        async with connected(broker.address) as client:
            assert await client.offset_of() == -1  # It was not saved yet.


async def test_what_waits_for_its_time_survives_an_abrupt_restart() -> None:
    async with EmbeddedBroker() as broker:
        await broker.create_topic(TOPIC)
        await send(broker, b"level", properties={"DELAY": "18"})
        await send(broker, b"timer", properties={"TIMER_DELAY_SEC": "7200"})
        await broker.restart(abrupt=True)
        assert await bodies(broker) == []
        await broker.advance(7201)
        async with connected(broker.address) as client:
            found = [message.body for message in await client.arrival(TOPIC)]
            while len(found) < 2:
                found += [message.body for message in await client.arrival(TOPIC, 0, len(found))]
        assert sorted(found) == [b"level", b"timer"]


async def test_sends_that_wait_for_the_disk_do_not_hold_up_an_abrupt_stop() -> None:
    async with EmbeddedBroker(flush="sync") as broker, connected(broker.address) as client:
        await broker.create_topic(TOPIC)
        sends = [asyncio.ensure_future(client.send()) for _ in range(50)]
        await asyncio.sleep(0)
        await broker.stop_broker(abrupt=True)
        ends = await asyncio.gather(*sends, return_exceptions=True)
        told = [end for end in ends if not isinstance(end, BaseException)]
        assert all(isinstance(end, ConnectionClosed) for end in ends if end not in told)
        await broker.start_broker()
        assert len(await bodies(broker)) >= len(told)


async def test_an_orderly_stop_leaves_the_store_in_order() -> None:
    async with EmbeddedBroker() as broker:
        async with connected(broker.address) as client:
            await progress(client)
        await broker.stop_broker()
        assert not (broker.directory / "broker-a" / "abort").exists()
        await broker.start_broker()
        async with connected(broker.address) as client:
            assert await client.offset_of() == 1


async def test_a_stopped_broker_is_refused_and_its_port_stays_its_own() -> None:
    async with EmbeddedBroker(brokers=2) as broker:
        await broker.stop_broker(1)
        with pytest.raises(ConnectFailed):
            await send(broker, at=1)
        assert await cluster_of(broker.namesrv) == {"broker-a": broker.address}
        async with EmbeddedBroker(brokers=8) as others:
            assert broker.addresses[1] not in others.addresses
        await broker.start_broker(1)
        await send(broker, at=1)
        assert (await cluster_of(broker.namesrv))["broker-b"] == broker.addresses[1]


async def test_without_a_namesrv_brokers_go_on_and_register_when_it_is_back() -> None:
    async with EmbeddedBroker(brokers=2) as broker:
        address = broker.namesrv
        await broker.stop_namesrv()
        with pytest.raises(ConnectFailed):
            await cluster_of(address)
        await send(broker)
        await broker.start_namesrv()
        assert broker.namesrv == address
        assert await cluster_of(address) == dict(
            zip(["broker-a", "broker-b"], broker.addresses, strict=True)
        )


# -- through proxies -----------------------------------------------------------------------------


async def test_through_proxy_clients_are_led_through_what_a_test_can_cut() -> None:
    async with EmbeddedBroker(through_proxy=True, brokers=2) as broker:
        await broker.create_topic(TOPIC)
        routes = await brokers_of(broker.namesrv, TOPIC)
        assert routes == {"broker-a": broker.proxy(0).address, "broker-b": broker.proxy(1).address}
        assert await cluster_of(broker.namesrv) == routes
        async with connected(routes["broker-b"]) as cut, connected(routes["broker-a"]) as spared:
            assert number(await cut.send(), "queueOffset") == 0
            broker.proxy(1).cut()
            with pytest.raises(ConnectionClosed):
                await cut.send()
            assert (await spared.send()).code == 0
        broker.namesrv_proxy.refuse()
        with pytest.raises(ConnectFailed):
            await cluster_of(broker.namesrv)


# -- blocking ------------------------------------------------------------------------------------


def test_a_plain_with_serves_synchronous_tests() -> None:
    clock = ManualClock()
    with EmbeddedBroker(brokers=2, through_proxy=True, clock=clock) as broker:
        broker.create_topic(TOPIC, queues=2)
        routes = asyncio.run(brokers_of(broker.namesrv, TOPIC))
        assert routes["broker-a"] == broker.proxy().address
        assert broker.clock is clock
        broker.stop_broker(1)
        assert list(asyncio.run(cluster_of(broker.namesrv))) == ["broker-a"]
        broker.start_broker(1)
        broker.restart(abrupt=True)
        assert len(asyncio.run(cluster_of(broker.namesrv))) == 2
        broker.proxy().refuse()
        with pytest.raises(ConnectFailed):
            asyncio.run(cluster_of(routes["broker-a"]))
        broker.stop_namesrv()
        broker.start_namesrv()
        assert len(asyncio.run(cluster_of(broker.namesrv))) == 2
        assert broker.address == broker.addresses[0]
    with pytest.raises(RuntimeError, match="ended"):
        broker.restart()


def test_what_fails_inside_is_raised_outside() -> None:
    with pytest.raises(BadSetting), EmbeddedBroker(settings={"maxMessageSize": "much"}):
        pytest.fail("it started")
    with EmbeddedBroker() as broker, pytest.raises(ValueError, match="system topic"):
        broker.create_topic("TBW102")


# -- the package ---------------------------------------------------------------------------------


def test_importing_the_package_and_its_plugin_loads_no_server() -> None:
    code = (
        "import sys, cometmq.testing, cometmq.testing.pytest_plugin\n"
        "print(*sorted(n for n in sys.modules if n.startswith(('cometmq', 'msgspec', 'asyncio'))))"
    )
    loaded = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    ).stdout.split()
    assert [name for name in loaded if name.startswith(("cometmq", "msgspec"))] == [
        "cometmq", "cometmq.testing", "cometmq.testing.pytest_plugin",
    ]  # fmt: skip


def test_every_public_name_is_there() -> None:
    import cometmq.testing

    for name in cometmq.testing.__all__:
        assert getattr(cometmq.testing, name).__name__ == name
    with pytest.raises(AttributeError, match="no attribute 'Nothing'"):
        _ = cometmq.testing.Nothing
