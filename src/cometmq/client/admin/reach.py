"""How a call reaches the brokers and NameServers that it is meant for.

One question goes to all of them at once, within a bound. All are waited for before the first
failure is raised, so that nothing is still under way behind the caller's back.
"""

import asyncio
import logging
from collections.abc import Awaitable, Collection, Iterable, Mapping, Sequence
from typing import TypeVar

import msgspec

from cometmq.protocol.codes import RequestCode
from cometmq.protocol.command import Command
from cometmq.protocol.errors import ProtocolError
from cometmq.protocol.fastjson import decode_body
from cometmq.protocol.message_queue import MessageQueue
from cometmq.protocol.routes import BrokerData, ClusterInfo, TopicRoute

from ..errors import (
    AnswerTimedOut,
    BadAnswer,
    ConnectionLost,
    IllegalArgument,
    NoRoute,
    Unreachable,
)
from ..link import SUCCESS, Link
from ..received import ReceivedMessage, decode_messages

log = logging.getLogger(__name__)
PEERS_AT_ONCE = 16
"""So many brokers are asked at the same time; the others wait their turn."""
RELAY_TIMEOUT_S = 15.0
"""For what a broker asks one of its clients, for which it waits 10 seconds itself."""
_AWAY = (Unreachable, ConnectionLost, AnswerTimedOut)

T = TypeVar("T")


class BrokerNode(msgspec.Struct, frozen=True):
    """One broker process."""

    cluster: str
    name: str
    broker_id: int
    """0 is the master, others are its slaves."""
    address: str


Answers = list[tuple[BrokerNode, Command]]


class Reach:
    def __init__(self, link: Link) -> None:
        self.link = link
        self._turns = asyncio.Semaphore(PEERS_AT_ONCE)
        self._skipped: set[str] = set()
        """Addresses of brokers that did not answer, and were told of: who asks again and again,
        as streams do, need not say so each time."""

    # -- which brokers ---------------------------------------------------------------------------

    async def cluster_info(self) -> ClusterInfo:
        answer = await self.link.ask_namesrv(RequestCode.GET_BROKER_CLUSTER_INFO)
        return decoded(answer, ClusterInfo, "cluster info")

    async def nodes(self) -> list[BrokerNode]:
        """All brokers, slaves too."""
        info = await self.cluster_info()
        return [node for data in info.broker_addr_table.values() for node in _nodes_of(data)]

    async def brokers(self, cluster: str = "", brokers: Collection[str] = ()) -> list[BrokerNode]:
        """One broker of each name, the master where there is one: of all clusters, of one, or
        those given by name or address."""
        nodes = sorted(await self.nodes(), key=lambda node: (node.name, node.broker_id))
        if brokers:
            return _chosen(nodes, brokers)
        nodes = [node for node in nodes if not cluster or node.cluster == cluster]
        if not nodes:
            raise NoRoute(f"no broker of cluster {cluster or 'any'} is registered now")
        return _first_of_each(nodes)

    async def targets(self, cluster: str = "", brokers: Collection[str] = ()) -> list[BrokerNode]:
        """As `brokers`, for changes: which cluster is to be said where there are several."""
        found = await self.brokers(cluster, brokers)
        clusters = sorted({node.cluster for node in found})
        if len(clusters) > 1 and not brokers:
            raise IllegalArgument(f"say which cluster is to be changed: {', '.join(clusters)}")
        return found

    async def route(self, topic: str) -> TopicRoute:
        """TopicNotFound when the NameServer knows no such topic."""
        fields = {"topic": topic, "acceptStandardJsonOnly": True}
        answer = await self.link.ask_namesrv(RequestCode.GET_ROUTEINFO_BY_TOPIC, fields)
        return decoded(answer, TopicRoute, "route")

    async def holders(self, topic: str) -> list[BrokerNode]:
        """The brokers that have a topic."""
        return holders_in(await self.route(topic), topic)

    async def queues(self, topic: str) -> dict[MessageQueue, BrokerNode]:
        """All queues of a topic that can be read, and their brokers."""
        route = await self.route(topic)
        nodes = {node.name: node for node in holders_in(route, topic)}
        return {
            MessageQueue(topic, data.broker_name, number): nodes[data.broker_name]
            for data in sorted(route.queue_datas, key=lambda data: data.broker_name)
            for number in range(data.read_queue_nums)
            if data.broker_name in nodes
        }

    async def holder(self, queue: MessageQueue) -> BrokerNode:
        for node in await self.holders(queue.topic):
            if node.name == queue.broker_name:
                return node
        raise NoRoute(f"topic {queue.topic} has no queues at broker {queue.broker_name!r}")

    # -- questions -------------------------------------------------------------------------------

    async def ask(
        self,
        node: BrokerNode,
        code: int,
        fields: Mapping[str, object] | None = None,
        body: bytes = b"",
        *,
        timeout_s: float | None = None,
        accept: Collection[int] = SUCCESS,
    ) -> Command:
        async with self._turns:
            try:
                return await self.link.ask(
                    node.address, code, fields, body, timeout_s=timeout_s, accept=accept
                )
            except _AWAY as error:
                raise type(error)(f"broker {node.name} at {node.address}: {error}") from error

    async def ask_each(
        self,
        nodes: Iterable[BrokerNode],
        code: int,
        fields: Mapping[str, object] | None = None,
        body: bytes = b"",
        *,
        timeout_s: float | None = None,
        accept: Collection[int] = SUCCESS,
        skip_unreachable: bool = False,
    ) -> Answers:
        """The answers of all; of those that are there, if others may be skipped."""

        async def one(node: BrokerNode) -> tuple[BrokerNode, Command | None]:
            try:
                answer = await self.ask(
                    node, code, fields, body, timeout_s=timeout_s, accept=accept
                )
            except _AWAY as error:
                if not skip_unreachable:
                    raise
                if node.address not in self._skipped:
                    log.warning("skipped: %s", error)
                    self._skipped.add(node.address)
                return node, None
            self._skipped.discard(node.address)
            return node, answer

        answers = await together(*(one(node) for node in nodes))
        return [(node, answer) for node, answer in answers if answer is not None]

    async def ask_namesrvs(
        self, code: int, fields: Mapping[str, object] | None = None, body: bytes = b""
    ) -> dict[str, Command]:
        """The answers of all NameServers by address: they do not tell each other."""
        addresses = self.link.cluster.addresses
        answers = await together(*(self._ask_namesrv(at, code, fields, body) for at in addresses))
        return dict(zip(addresses, answers, strict=True))

    async def _ask_namesrv(
        self, address: str, code: int, fields: Mapping[str, object] | None, body: bytes
    ) -> Command:
        async with self._turns:
            try:
                return await self.link.ask(address, code, fields, body)
            except _AWAY as error:
                raise type(error)(f"NameServer {address}: {error}") from error


def decoded(answer: Command, kind: type[T], what: str) -> T:
    try:
        return decode_body(answer.body, kind, what)
    except ProtocolError as error:
        raise BadAnswer(str(error)) from error


def messages_in(answer: Command, node: BrokerNode) -> list[ReceivedMessage]:
    try:
        return decode_messages(answer.body, node.name)
    except ProtocolError as error:
        raise BadAnswer(f"broker {node.name} at {node.address}: {error}") from error


async def together(*work: Awaitable[T]) -> list[T]:
    """All results, or the first error once all have ended; the other errors are its notes."""
    results = await asyncio.gather(*work, return_exceptions=True)
    errors = [result for result in results if isinstance(result, BaseException)]
    if errors:
        for other in errors[1:]:
            errors[0].add_note(f"and: {other}")
        raise errors[0]
    return [result for result in results if not isinstance(result, BaseException)]


def _nodes_of(data: BrokerData) -> list[BrokerNode]:
    return [
        BrokerNode(data.cluster, data.broker_name, number, address)
        for number, address in sorted(data.broker_addrs.items())
    ]


def _first_of_each(nodes: Sequence[BrokerNode]) -> list[BrokerNode]:
    first: dict[str, BrokerNode] = {}
    for node in nodes:
        first.setdefault(node.name, node)
    return list(first.values())


def _chosen(nodes: Sequence[BrokerNode], wanted: Collection[str]) -> list[BrokerNode]:
    found = {node.name: node for node in _first_of_each(nodes)}
    found |= {node.address: node for node in nodes}
    unknown = sorted(set(wanted) - found.keys())
    if unknown:
        known = ", ".join(f"{node.name} ({node.address})" for node in nodes)
        raise IllegalArgument(f"no such broker: {', '.join(unknown)}; there are: {known}")
    return list(dict.fromkeys(found[name] for name in wanted))


def holders_in(route: TopicRoute, topic: str) -> list[BrokerNode]:
    """One broker of each name: the master, or a slave where there is none."""
    nodes = [_nodes_of(data)[0] for data in route.broker_datas if data.broker_addrs]
    if not nodes:
        raise NoRoute(f"no broker of topic {topic} is there now")
    return sorted(nodes, key=lambda node: node.name)
