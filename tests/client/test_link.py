"""The link to a cluster: who is asked, what is said first, and what happens when wires break."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from typing import Any

import msgspec
import pytest

from cometmq.client.cluster import Cluster, Credentials
from cometmq.client.errors import (
    AnswerTimedOut,
    BadAnswer,
    ConnectionLost,
    NotStarted,
    TopicNotFound,
    Unreachable,
)
from cometmq.client.link import Link
from cometmq.client.nameservers import NameServers
from cometmq.protocol.codes import RequestCode
from cometmq.protocol.command import Command, Request, Response
from cometmq.protocol.heartbeat import Heartbeat, ProducerData
from cometmq.testing import EmbeddedBroker, FaultProxy
from cometmq.transport.connection import Connection, Handler
from cometmq.transport.server import Server
from tests.broker.brokers import until
from tests.testing.clients import connected

from .consumption import SOON_S, TOPIC, shop

HEARTBEAT, ROUTE = int(RequestCode.HEART_BEAT), int(RequestCode.GET_ROUTEINFO_BY_TOPIC)
ECHO = 4242


def heartbeat(client_id: str) -> Heartbeat:
    return Heartbeat(client_id, [ProducerData("sellers")])


@contextlib.asynccontextmanager
async def linked(*namesrv: str, **how: Any) -> AsyncIterator[Link]:
    given = {"heartbeat": heartbeat, **{k: how.pop(k) for k in ("heartbeat",) if k in how}}
    link = Link(Cluster(list(namesrv), **how), **given)
    link.start()
    try:
        yield link
    finally:
        async with asyncio.timeout(5):
            await link.stop()


class Servant:
    """A server that remembers what it was asked, and answers with what a test says."""

    def __init__(self) -> None:
        self.asked: list[Command] = []
        self.answers: dict[int, Callable[[Connection, Command], Response | None]] = {}
        self.address = ""

    @property
    def codes(self) -> list[int]:
        return [command.code for command in self.asked]

    def __call__(self, connection: Connection, command: Command) -> Response | None:
        self.asked.append(command)
        answer = self.answers.get(command.code)
        return Response() if answer is None else answer(connection, command)


@contextlib.asynccontextmanager
async def servant() -> AsyncIterator[Servant]:
    """Serves as NameServer and broker: its routes lead to itself, under another name."""
    one = Servant()
    handlers: dict[int, Handler] = dict.fromkeys((HEARTBEAT, ROUTE, ECHO), one)
    server = Server(handlers)
    host = await server.listen("127.0.0.1", 0)
    one.address = str(host)
    one.answers[ROUTE] = lambda *_: Response(body=route_to(f"localhost:{host.port}"))
    try:
        yield one
    finally:
        await server.stop()


def route_to(address: str) -> bytes:
    return msgspec.json.encode({
        "brokerDatas": [{"brokerAddrs": {"0": address}, "brokerName": "b", "cluster": "c"}],
        "queueDatas": [{"brokerName": "b", "perm": 6, "readQueueNums": 1, "writeQueueNums": 1}],
    })  # fmt: skip


# -- connections -----------------------------------------------------------------------------------


async def test_a_new_connection_says_first_who_we_are() -> None:
    async with servant() as one, linked(one.address) as link:
        await link.routes.find(TOPIC)
        address = link.routes.any_address_of("b")
        assert address is not None
        await asyncio.gather(*(link.ask(address, ECHO) for _ in range(3)))
        assert one.codes == [ROUTE, HEARTBEAT, ECHO, ECHO, ECHO]
        told = msgspec.json.decode(one.asked[1].body)
    assert told["clientID"] == link.client_id
    assert told["producerDataSet"] == [{"groupName": "sellers"}]


async def test_whoever_needs_no_heartbeat_says_nothing_first() -> None:
    async with servant() as one, linked(one.address, heartbeat=None) as link:
        await link.ask(one.address, ECHO)
        await link.beat()
        assert one.codes == [ECHO]


async def test_a_connection_that_was_cut_is_made_anew_and_greets_again() -> None:
    async with servant() as one, FaultProxy(one.address) as proxy:
        one.answers[ROUTE] = lambda *_: Response(body=route_to(proxy.address))
        async with linked(one.address) as link:
            await link.routes.find(TOPIC)
            await link.ask(proxy.address, ECHO)
            proxy.cut()
            await until(lambda: one.codes.count(HEARTBEAT) == 2)  # By itself.
            await link.ask(proxy.address, ECHO)
            assert one.codes == [ROUTE, HEARTBEAT, ECHO, HEARTBEAT, ECHO]


async def test_a_request_whose_connection_breaks_is_told_of() -> None:
    async with servant() as one, FaultProxy(one.address) as proxy, linked(one.address) as link:
        await link.ask(proxy.address, ECHO)
        proxy.stall()
        asking = asyncio.create_task(link.ask(proxy.address, ECHO))
        await asyncio.sleep(0.05)
        proxy.cut()
        with pytest.raises(ConnectionLost):
            await asking


async def test_a_connection_that_ends_with_its_greeting_is_no_connection() -> None:
    def answer_and_hang_up(connection: Connection, command: Command) -> None:
        connection.answer(command, Response())
        connection.close()

    async with servant() as one:
        one.answers[HEARTBEAT] = answer_and_hang_up
        async with linked(one.address) as link:  # It also stops, which is bounded.
            await link.routes.find(TOPIC)
            for _ in range(20):
                with pytest.raises((ConnectionLost, Unreachable)):
                    await link.ask(link.routes.any_address_of("b") or "", ECHO)
            one.answers.pop(HEARTBEAT)
            await link.ask(link.routes.any_address_of("b") or "", ECHO)


async def test_a_broker_that_refuses_the_greeting_is_told_of() -> None:
    async with servant() as one:
        one.answers[HEARTBEAT] = lambda *_: Response(16, "who are you?")
        async with linked(one.address) as link:
            await link.routes.find(TOPIC)
            with pytest.raises(Exception, match="who are you"):
                await link.ask(link.routes.any_address_of("b") or "", ECHO)


async def test_who_waits_for_a_connection_while_the_link_stops_hears_of_it() -> None:
    async with servant() as one:
        one.answers[HEARTBEAT] = lambda *_: None
        async with linked(one.address) as link:
            await link.routes.find(TOPIC)
            asking = asyncio.create_task(link.ask(link.routes.any_address_of("b") or "", ECHO))
            await until(lambda: HEARTBEAT in one.codes)
        with pytest.raises(NotStarted):
            await asking
        with pytest.raises(NotStarted):
            await link.ask(one.address, ECHO)


async def test_every_request_is_signed_once() -> None:
    credentials = Credentials("key", "secret")
    async with servant() as one:
        how: dict[str, Any] = {"credentials": credentials, "heartbeat_s": 0.05}
        async with linked(one.address, **how) as link:
            await link.routes.find(TOPIC)
            await link.ask(link.routes.any_address_of("b") or "", ECHO, {"x": "y"}, b"body")
            await until(lambda: one.codes.count(HEARTBEAT) >= 3)
    assert len(one.asked) >= 5
    for command in one.asked:
        fields = command.text_fields()
        signature = fields.pop("Signature")
        unsigned = {name: value for name, value in fields.items() if name != "AccessKey"}
        signed = credentials.sign(Request(command.code, unsigned, command.body))
        assert signature == signed.fields["Signature"], command.code


async def test_a_silent_broker_gets_a_new_connection() -> None:
    async with servant() as one, FaultProxy(one.address) as proxy:
        one.answers[ROUTE] = lambda *_: Response(body=route_to(proxy.address))
        how: dict[str, Any] = {"heartbeat_s": 0.05, "request_timeout_s": 0.2}
        async with linked(one.address, **how) as link:
            await link.routes.find(TOPIC)
            await until(lambda: one.codes.count(HEARTBEAT) >= 2)
            proxy.drop()
            await until(lambda: proxy.traffic.connections >= 2)
            proxy.restore()
            heard = one.codes.count(HEARTBEAT)
            await until(lambda: one.codes.count(HEARTBEAT) > heard + 1)


async def test_who_sends_no_heartbeat_hangs_up_on_a_silent_broker() -> None:
    async with (
        servant() as one,
        FaultProxy(one.address) as proxy,
        linked(one.address, heartbeat=None, request_timeout_s=0.2) as link,
    ):
        await link.ask(proxy.address, ECHO)
        proxy.silence()
        with pytest.raises(AnswerTimedOut):
            await link.ask(proxy.address, ECHO)
        await link.ask(proxy.address, ECHO)
        assert proxy.traffic.connections == 2


async def test_a_slow_request_leaves_the_others_of_who_sends_heartbeats_alone() -> None:
    slow: list[Callable[[], None]] = []

    def late(connection: Connection, command: Command) -> None:
        slow.append(lambda: connection.answer(command, Response()))

    async with servant() as one, linked(one.address) as link:
        await link.routes.find(TOPIC)
        address = link.routes.any_address_of("b") or ""
        one.answers[ECHO] = late
        other = asyncio.create_task(link.ask(address, ECHO))
        await until(lambda: len(slow) == 1)
        with pytest.raises(AnswerTimedOut):
            await link.ask(address, ECHO, timeout_s=0.05)
        await until(lambda: one.codes.count(HEARTBEAT) == 2)  # It asks beside, and is answered.
        slow[0]()
        await other


async def test_an_answer_that_does_not_come_in_time_is_told_of() -> None:
    async with servant() as one:
        one.answers[ECHO] = lambda *_: None
        async with linked(one.address) as link:
            with pytest.raises(AnswerTimedOut, match=r"4242 within 0\.05 s"):
                await link.ask(one.address, ECHO, timeout_s=0.05)


# -- NameServers -----------------------------------------------------------------------------------


async def test_the_next_nameserver_is_asked_when_one_is_away() -> None:
    async with shop() as (broker, _), FaultProxy(broker.namesrv) as away:
        away.refuse()
        for _ in range(4):  # Whichever it begins with.
            async with linked(away.address, broker.namesrv) as link:
                assert len((await link.routes.find(TOPIC)).read_queues) == 1


async def test_requests_that_meet_a_stalled_nameserver_all_get_to_the_other() -> None:
    async with shop() as (broker, _), FaultProxy(broker.namesrv) as stalled:
        stalled.stall()
        async with linked(stalled.address, broker.namesrv, request_timeout_s=0.2) as link:
            link._nameservers._current = 0
            found = await asyncio.gather(*(link.routes.refresh(TOPIC) for _ in range(4)))
            assert {len(route.read_queues) for route in found} == {1}
            tried = stalled.traffic.connections
            await link.routes.refresh(TOPIC)
            assert stalled.traffic.connections == tried  # It stays with the one that answers.


async def test_a_stalled_nameserver_gets_a_new_connection() -> None:
    async with (
        shop() as (broker, _),
        FaultProxy(broker.namesrv) as proxy,
        linked(proxy.address, request_timeout_s=0.2) as link,
    ):
        await link.routes.refresh(TOPIC)
        proxy.drop()
        with pytest.raises(Unreachable, match="no NameServer answers"):
            await link.routes.refresh(TOPIC)
        proxy.restore()
        assert len((await link.routes.refresh(TOPIC)).read_queues) == 1
        assert proxy.traffic.connections == 2


async def test_no_is_an_answer_and_nobody_else_is_asked() -> None:
    asked: list[str] = []

    async def ask(address: str, _: Request) -> Command:
        asked.append(address)
        raise TopicNotFound("no such topic")

    with pytest.raises(TopicNotFound):
        await NameServers(["a:1", "b:1"], ask).ask(Request(ROUTE, {}))
    assert len(asked) == 1


async def test_a_route_that_cannot_be_read_is_a_bad_answer() -> None:
    async with servant() as one, linked(one.address) as link:
        one.answers[ROUTE] = lambda *_: Response(body=b"{nonsense")
        with pytest.raises(BadAnswer, match="route cannot be read"):
            await link.routes.find(TOPIC)


# -- routes ----------------------------------------------------------------------------------------


async def test_routes_are_refreshed_and_changes_are_told() -> None:
    changes: list[int] = []
    async with shop() as (broker, _), linked(broker.namesrv, route_refresh_s=0.05) as link:
        link.routes.on_change(lambda route: changes.append(len(route.read_queues)))
        await link.routes.find(TOPIC)
        await broker.create_topic(TOPIC, 3)
        await until(lambda: changes == [1, 3])
        known = link.routes.known(TOPIC)
        assert known is not None
        assert [queue.queue_id for queue in known.write_queues] == [0, 1, 2]


async def test_routes_stay_while_no_nameserver_is_there() -> None:
    async with (
        shop() as (broker, _),
        linked(broker.namesrv, route_refresh_s=0.05, request_timeout_s=0.2) as link,
    ):
        await link.routes.find(TOPIC)
        await broker.stop_namesrv()
        await asyncio.sleep(0.3)
        assert len((await link.routes.find(TOPIC)).read_queues) == 1
        await broker.start_namesrv()
        await broker.create_topic(TOPIC, 2)
        await until(lambda: len(link.routes.known(TOPIC).read_queues) == 2)  # type: ignore[union-attr]


async def test_an_unknown_topic_is_said_to_be_unknown() -> None:
    async with shop() as (broker, _), linked(broker.namesrv) as link:
        with pytest.raises(TopicNotFound, match="create the topic first"):
            await link.routes.find("nowhere")


async def test_a_client_that_leaves_is_forgotten_at_once() -> None:
    async with EmbeddedBroker(in_memory=True) as broker:
        await broker.create_topic(TOPIC, 1)
        async with linked(broker.namesrv) as link, connected(broker.address) as client:
            await link.routes.find(TOPIC)
            await link.beat()
            fields = {"producerGroup": "sellers"}
            async with asyncio.timeout(SOON_S):
                assert link.client_id.encode() in (await client.ask(204, fields)).body
                await link.unregister(producer_group="sellers")
                assert link.client_id.encode() not in (await client.ask(204, fields)).body


async def test_leaving_takes_no_longer_for_many_brokers_that_are_silent() -> None:
    async with (
        shop(through_proxy=True, brokers=3) as (broker, _),
        linked(broker.namesrv, request_timeout_s=1.0) as link,
    ):
        await link.routes.refresh(TOPIC)
        await link.beat()
        for number in range(3):
            broker.proxy(number).stall()
        begun = asyncio.get_running_loop().time()
        await link.unregister(producer_group="sellers")
        assert asyncio.get_running_loop().time() - begun < 2.0  # Not one second for each.
        for number in range(3):
            broker.proxy(number).resume()
