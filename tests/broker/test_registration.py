"""How NameServers hear of a broker: of its start, its topics and its end."""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest

from cometmq.broker import registration as registration_module
from cometmq.namesrv.config import NamesrvConfig
from cometmq.namesrv.server import NameServer
from cometmq.protocol.topic_config import TopicConfig

from .brokers import Client, bounded, broker_of, context_of, heartbeat_of, serving, until

GET_ROUTE, CLUSTER_INFO, PUT_KV = 105, 106, 100


@contextlib.asynccontextmanager
async def name_server(port: int = 0) -> AsyncIterator[NameServer]:
    server = NameServer(NamesrvConfig(port=port))
    await server.start()
    try:
        yield server
    finally:
        await server.stop()


def brokers_of(server: NameServer, topic: str) -> list[str]:
    """Names of the brokers that a NameServer knows a topic at."""
    route = server.state.routes.route(topic)
    return [] if route is None else [queue.broker_name for queue in route.queue_datas]


def addresses(*servers: NameServer) -> str:
    return ";".join(str(server.address) for server in servers)


# -- start ---------------------------------------------------------------------------------------


@bounded
async def test_a_broker_that_has_started_is_known(tmp_path: Path) -> None:
    async with (
        name_server() as server,
        serving(tmp_path, namesrvAddr=addresses(server), brokerName="b-1") as broker,
    ):
        asking = await Client.to(str(server.address))
        info = msgspec.json.decode((await asking.ask(CLUSTER_INFO)).body)
        assert info["clusterAddrTable"] == {"DefaultCluster": ["b-1"]}
        assert info["brokerAddrTable"]["b-1"]["brokerAddrs"] == {"0": str(broker.address)}
        for topic in ("TBW102", "DefaultCluster", "b-1"):
            assert brokers_of(server, topic) == ["b-1"]


@bounded
async def test_all_name_servers_know_it(tmp_path: Path) -> None:
    async with (
        name_server() as first,
        name_server() as second,
        serving(tmp_path, namesrvAddr=f" {addresses(first, second)}; "),
    ):
        assert brokers_of(first, "TBW102") == brokers_of(second, "TBW102") == ["broker-a"]


@bounded
async def test_a_name_server_that_is_away_keeps_nobody_from_starting(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with name_server() as gone:
        away = addresses(gone)
    async with (
        name_server() as server,
        serving(tmp_path, namesrvAddr=f"{away};{addresses(server)}") as broker,
    ):
        assert brokers_of(server, "TBW102") == ["broker-a"]
        client = await Client.to(broker)
        assert (await client.send()).code == 0
    assert f"not registered at NameServer {away}" in caplog.text


@bounded
async def test_one_that_comes_back_hears_of_everything(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(registration_module, "RETRY_S", 0.05)
    caplog.set_level(logging.INFO, "cometmq.broker.registration")
    async with name_server() as steady, name_server() as first:
        port = first.address.port
        async with serving(tmp_path, namesrvAddr=addresses(first, steady)) as broker:
            client = await Client.to(broker)
            await first.stop()
            await client.send("meanwhile")
            await until(lambda: "not registered at NameServer" in caplog.text)
            async with name_server(port) as second:
                await until(lambda: brokers_of(second, "meanwhile") == ["broker-a"])
                assert brokers_of(steady, "meanwhile") == ["broker-a"]
    assert caplog.text.count("not registered at NameServer") == 1, "once, not at every attempt"
    assert "again" in caplog.text


@bounded
async def test_a_connection_that_is_lost_is_made_again_at_once(tmp_path: Path) -> None:
    async with name_server() as server, serving(tmp_path, namesrvAddr=addresses(server)):
        (connection,) = server._server.connections
        connection.abort()
        await until(lambda: brokers_of(server, "TBW102") == [])
        await until(lambda: brokers_of(server, "TBW102") == ["broker-a"])


@bounded
async def test_who_hangs_up_on_us_is_not_stormed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(registration_module, "RETRY_S", 60.0)
    calls = 0

    def hang_up(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal calls
        calls += 1
        writer.close()

    rude = await asyncio.start_server(hang_up, "127.0.0.1", 0)
    host, port = rude.sockets[0].getsockname()
    async with serving(tmp_path, namesrvAddr=f"{host}:{port}"):
        await asyncio.sleep(0.3)
        assert 1 <= calls <= 3
    rude.close()


@bounded
async def test_a_broker_needs_no_name_server(tmp_path: Path) -> None:
    async with serving(tmp_path) as broker:
        client = await Client.to(broker)
        assert (await client.send()).code == 0


# -- changes -------------------------------------------------------------------------------------


@bounded
async def test_a_new_topic_is_known_at_once(tmp_path: Path) -> None:
    async with (
        name_server() as server,
        serving(tmp_path, namesrvAddr=addresses(server)) as broker,
    ):
        client = await Client.to(broker)
        await client.send("fresh", d=3)
        await until(lambda: brokers_of(server, "fresh") == ["broker-a"], 3)
        route = server.state.routes.route("fresh")
        assert route is not None
        assert (route.queue_datas[0].write_queue_nums, route.queue_datas[0].perm) == (3, 6)
        await client.ask(34, {}, heartbeat_of("me"))
        await until(lambda: brokers_of(server, "%RETRY%billing") == ["broker-a"], 3)


@bounded
async def test_many_new_topics_are_told_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    registrations = 0
    register = registration_module._NameServer._register

    async def counted(self: registration_module._NameServer) -> bool:
        nonlocal registrations
        registrations += 1
        return await register(self)

    monkeypatch.setattr(registration_module._NameServer, "_register", counted)
    async with (
        name_server() as server,
        serving(tmp_path, namesrvAddr=addresses(server)) as broker,
    ):
        client = await Client.to(broker)
        await asyncio.gather(*(client.send(f"fresh-{n}") for n in range(100)))
        await until(lambda: brokers_of(server, "fresh-99") == ["broker-a"])
        await until(lambda: all(brokers_of(server, f"fresh-{n}") for n in range(100)))
        assert registrations < 50


@bounded
async def test_which_topics_are_ordered_is_heard_from_the_name_server(tmp_path: Path) -> None:
    async with (
        name_server() as server,
        serving(tmp_path, namesrvAddr=addresses(server), registerNameServerPeriod=50) as broker,
    ):
        topics = context_of(broker).topics
        topics.update(TopicConfig("ordered", 2, 2), TopicConfig("plain", 2, 2))
        asking = await Client.to(str(server.address))
        kv = {"namespace": "ORDER_TOPIC_CONFIG", "key": "ordered", "value": "broker-a:2"}
        assert (await asking.ask(PUT_KV, kv)).code == 0
        await until(lambda: (found := topics.get("ordered")) is not None and found.order)
        plain = topics.get("plain")
        assert plain is not None
        assert not plain.order


# -- end -----------------------------------------------------------------------------------------


@bounded
async def test_a_broker_that_stops_is_forgotten_before_it_is_gone(tmp_path: Path) -> None:
    async with name_server() as first, name_server() as second:
        broker = broker_of(tmp_path, namesrvAddr=addresses(first, second))
        await broker.start()
        asked = []
        leave = first.state.routes.unregister

        def noted(*arguments: object, **more: object) -> object:
            asked.append(arguments)
            return leave(*arguments, **more)  # type: ignore[arg-type]

        first.state.routes.unregister = noted  # type: ignore[method-assign, assignment]
        await broker.stop()
        assert len(asked) == 1, "a farewell, not only a closed connection"
        assert brokers_of(first, "TBW102") == brokers_of(second, "TBW102") == []


@bounded
async def test_a_name_server_that_does_not_answer_delays_a_stop_only_so_long(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(registration_module, "FAREWELL_S", 0.1)
    async with name_server() as server:
        broker = broker_of(tmp_path, namesrvAddr=addresses(server))
        await broker.start()
        for connection in server._server.connections:
            connection._transport.pause_reading()  # type: ignore[union-attr]
        async with asyncio.timeout(5):
            await broker.stop()
