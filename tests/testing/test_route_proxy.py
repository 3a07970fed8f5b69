"""A NameServer's proxy: routes lead through fault proxies, everything else passes as it is."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest

from cometmq.protocol.command import Command, Response
from cometmq.testing import Direction, EmbeddedBroker, RouteProxy
from cometmq.transport.connection import Connection, Handler
from cometmq.transport.errors import ConnectionClosed, RequestTimeout
from cometmq.transport.server import Server
from tests.broker.brokers import TOPIC, number, request_of, serving, until
from tests.testing.clients import brokers_of, cluster_of, connected

FASTJSON = b'{"brokerDatas":[{"brokerAddrs":{0:"127.0.0.1:10911",1:"127.0.0.1:10921"},"brokerName":'
FASTJSON += b'"broker-a","cluster":"c","future":[1]}],"filterServerTable":{},"queueDatas":[]}'


@contextlib.asynccontextmanager
async def namesrv_of(handlers: dict[int, Handler]) -> AsyncIterator[str]:
    """A NameServer that answers what a test wants."""
    server = Server(handlers)
    address = await server.listen("127.0.0.1", 0)
    try:
        yield str(address)
    finally:
        await server.stop()


async def test_routes_and_cluster_lists_name_a_proxy_for_each_broker() -> None:
    async with EmbeddedBroker(brokers=2) as broker:
        await broker.create_topic(TOPIC)
        async with RouteProxy(broker.namesrv) as routes:
            found = await brokers_of(routes.address, TOPIC)
            assert found == {
                "broker-a": routes.to(broker.addresses[0]).address,
                "broker-b": routes.to(broker.addresses[1]).address,
            }
            assert await cluster_of(routes.address) == found
            assert not set(found.values()) & set(broker.addresses)
            async with connected(found["broker-b"]) as client:
                assert number(await client.send(), "queueOffset") == 0
            assert routes.to(broker.addresses[1]).traffic.bytes_to_server > 0
            assert routes.to(broker.addresses[0]).traffic.connections == 0


async def test_a_proxy_that_was_asked_for_early_is_the_one_that_routes_name() -> None:
    async with EmbeddedBroker() as broker, RouteProxy(broker.namesrv) as routes:
        proxy = routes.to(broker.address)
        proxy.refuse()
        assert await brokers_of(routes.address, "TBW102") == {"broker-a": proxy.address}


async def test_an_answer_cut_in_its_middle_ends_the_connection_and_the_message_is_stored() -> None:
    async with EmbeddedBroker() as broker, RouteProxy(broker.namesrv) as routes:
        proxy = routes.to(broker.address)
        async with connected(proxy.address) as client:
            proxy.cut_after(20, Direction.TO_CLIENT)
            with pytest.raises(ConnectionClosed):
                await client.send(body=b"told or not")
        assert proxy.traffic.bytes_to_client == 20
        async with connected(proxy.address) as client:
            assert [m.body for m in await client.pulled(TOPIC)] == [b"told or not"]


async def test_a_request_cut_in_its_middle_stores_nothing() -> None:
    async with EmbeddedBroker() as broker, RouteProxy(broker.namesrv) as routes:
        await broker.create_topic(TOPIC)
        proxy = routes.to(broker.address)
        async with connected(proxy.address) as client:
            proxy.cut_after(100, Direction.TO_SERVER)
            with pytest.raises(ConnectionClosed):
                await client.send(body=bytes(1000))
        async with connected(proxy.address) as client:
            assert await client.pulled(TOPIC) == []


async def test_the_answer_of_a_stalled_broker_comes_when_it_goes_on() -> None:
    async with EmbeddedBroker() as broker, RouteProxy(broker.namesrv) as routes:
        proxy = routes.to(broker.address)
        async with connected(proxy.address) as client:
            proxy.stall()
            with pytest.raises(RequestTimeout):
                await client.connection.request(request_of(31), 0.05)
            proxy.resume()
            assert (await client.send()).code == 0


async def test_json_with_bare_keys_is_understood_and_the_rest_of_it_kept() -> None:
    def answer(_: Connection, command: Command) -> Response:
        assert command.text_fields() == {"topic": "文"}
        return Response(body=FASTJSON)

    async with (
        namesrv_of({105: answer}) as namesrv,
        RouteProxy(namesrv) as routes,
        connected(routes.address) as client,
    ):
        body = (await client.ask(105, {"topic": "文"})).body
        assert b" " not in body
        (found,) = msgspec.json.decode(body)["brokerDatas"]
        assert found == {
            "brokerAddrs": {
                "0": routes.to("127.0.0.1:10911").address,
                "1": routes.to("127.0.0.1:10921").address,
            },
            "brokerName": "broker-a", "cluster": "c", "future": [1],
        }  # fmt: skip


async def test_other_requests_refusals_and_one_way_words_pass_unchanged() -> None:
    heard: list[Command] = []

    def answer(_: Connection, command: Command) -> Response:
        heard.append(command)
        return Response(7, "not today", {"why": "so"}, b"{0:1}")

    async with (
        namesrv_of({105: answer, 999: answer}) as namesrv,
        RouteProxy(namesrv) as routes,
        connected(routes.address) as client,
    ):
        for code in (105, 999):
            said = await client.ask(code, {"a": "b"}, b"body")
            assert (said.code, said.remark, said.text_fields(), said.body) == (
                7, "not today", {"why": "so"}, b"{0:1}",
            )  # fmt: skip
        assert (await client.ask(998)).code == 3
        client.tell(999, {"a": "c"}, b"one-way")
        await until(lambda: len(heard) == 3)
        assert heard[-1].is_oneway
        assert (heard[-1].text_fields(), heard[-1].body) == ({"a": "c"}, b"one-way")


async def test_many_requests_at_once_share_one_connection() -> None:
    peers: set[Connection] = set()

    def answer(connection: Connection, command: Command) -> Response:
        peers.add(connection)
        return Response(body=command.body)

    async with (
        namesrv_of({999: answer}) as namesrv,
        RouteProxy(namesrv) as routes,
        connected(routes.address) as client,
    ):
        bodies = [str(n).encode() for n in range(50)]
        answers = await asyncio.gather(*(client.ask(999, {}, body) for body in bodies))
        assert [answer.body for answer in answers] == bodies
        assert len(peers) == 1


async def test_a_broker_may_register_through_it_and_is_forgotten_with_its_connection(
    tmp_path: Path,
) -> None:
    async with EmbeddedBroker() as cluster, RouteProxy(cluster.namesrv) as routes:
        settings = {"brokerName": "guest", "namesrvAddr": routes.address}
        async with serving(tmp_path, **settings) as guest:
            assert (await cluster_of(cluster.namesrv))["guest"] == str(guest.address)
            await guest.abandon()
            async with asyncio.timeout(10):
                while "guest" in await cluster_of(cluster.namesrv):
                    await asyncio.sleep(0.005)


async def test_a_namesrv_that_goes_away_takes_its_clients_connections_along() -> None:
    async with EmbeddedBroker() as broker, RouteProxy(broker.namesrv) as routes:
        async with connected(routes.address) as client:
            assert (await client.ask(106)).code == 0
            await broker.stop_namesrv()
            await until(lambda: not client.connection.is_open)
        async with connected(routes.address) as client:
            with pytest.raises(ConnectionClosed):
                await client.ask(106)
        await broker.start_namesrv()
        assert list(await cluster_of(routes.address)) == ["broker-a"]


async def test_what_is_not_running_says_so() -> None:
    with pytest.raises(RuntimeError, match="not running"):
        _ = RouteProxy("127.0.0.1:9876").address
