"""Where the queues of a topic are, as NameServers tell it, and what was heard last.

A route that cannot be refreshed stays: brokers go on serving when all NameServers are away.
"""

import logging
from collections.abc import Awaitable, Callable, Mapping

import msgspec

from cometmq.protocol.codes import RequestCode
from cometmq.protocol.command import Command, Request
from cometmq.protocol.fastjson import decode_body
from cometmq.protocol.message_queue import MessageQueue
from cometmq.protocol.routes import MASTER_ID, TopicRoute

from .errors import ClientError, TopicNotFound, answers_read

log = logging.getLogger(__name__)
_READABLE = 4
_WRITABLE = 2

Ask = Callable[[Request], Awaitable[Command]]


class Route(msgspec.Struct, frozen=True):
    """One topic's queues and brokers. Queues stand in RocketMQ's order."""

    topic: str
    write_queues: tuple[MessageQueue, ...]
    """Those at brokers whose master is there."""
    read_queues: tuple[MessageQueue, ...]
    brokers: Mapping[str, Mapping[int, str]]
    """Address by broker name and broker id."""
    order_conf: str = ""


class Routes:
    def __init__(self, ask: Ask) -> None:
        self._ask = ask
        self._routes: dict[str, Route] = {}
        self._brokers: dict[str, Mapping[int, str]] = {}
        self._listeners: list[Callable[[Route], None]] = []

    def on_change(self, listener: Callable[[Route], None]) -> None:
        self._listeners.append(listener)

    def known(self, topic: str) -> Route | None:
        """The way that waits for nothing."""
        return self._routes.get(topic)

    async def find(self, topic: str) -> Route:
        return self._routes.get(topic) or await self.refresh(topic)

    async def refresh(self, topic: str) -> Route:
        """Ask a NameServer; TopicNotFound when it knows no such topic."""
        fields = {"topic": topic, "acceptStandardJsonOnly": "true"}
        answer = await self._ask(Request(RequestCode.GET_ROUTEINFO_BY_TOPIC, fields))
        with answers_read():
            route = _route_of(topic, decode_body(answer.body, TopicRoute, "route"))
        before = self._routes.get(topic)
        self._routes[topic] = route
        self._brokers.update(route.brokers)
        if before != route:
            for listener in self._listeners:
                listener(route)
        return route

    async def refresh_all(self) -> None:
        for topic in list(self._routes):
            try:
                await self.refresh(topic)
            except TopicNotFound:
                log.debug("no NameServer knows %s any more; its last route stays", topic)
            except ClientError as error:
                log.warning("the route of %s cannot be refreshed: %s", topic, error)
                return

    def address_of(self, broker_name: str, broker_id: int = MASTER_ID) -> str | None:
        return self._brokers.get(broker_name, {}).get(broker_id)

    def any_address_of(self, broker_name: str) -> str | None:
        """The master, or a slave where there is no master."""
        addresses = self._brokers.get(broker_name, {})
        return addresses[min(addresses)] if addresses else None

    @property
    def topics(self) -> list[str]:
        return list(self._routes)

    @property
    def addresses(self) -> set[str]:
        """Every broker of every topic that is in use."""
        return {address for route in self._routes.values() for address in _addresses_in(route)}


def _addresses_in(route: Route) -> list[str]:
    return [address for ids in route.brokers.values() for address in ids.values()]


def _route_of(topic: str, told: TopicRoute) -> Route:
    brokers = {data.broker_name: data.broker_addrs for data in told.broker_datas}
    write: list[MessageQueue] = []
    read: list[MessageQueue] = []
    for data in sorted(told.queue_datas, key=lambda data: data.broker_name):
        name = data.broker_name
        if data.perm & _WRITABLE and MASTER_ID in brokers.get(name, {}):
            write += [MessageQueue(topic, name, number) for number in range(data.write_queue_nums)]
        if data.perm & _READABLE:
            read += [MessageQueue(topic, name, number) for number in range(data.read_queue_nums)]
    order_conf = told.order_topic_conf if isinstance(told.order_topic_conf, str) else ""
    return Route(topic, tuple(write), tuple(read), brokers, order_conf)
