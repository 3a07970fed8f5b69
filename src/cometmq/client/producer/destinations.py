"""Where a topic's messages go: its writable queues, and whose turn it is.

A topic that no NameServer knows is taken to be where new topics are made (TBW102), until its first
message has made it; then its own route is found out. Routes that are in doubt are refreshed beside.
"""

import asyncio
import logging
import random
from collections.abc import Sequence

from cometmq.protocol.message_queue import MessageQueue

from ..backoff import Backoff
from ..errors import ClientError, NoRoute, TopicNotFound
from ..latency import RoundRobin
from ..link import Link
from ..routes import Route
from .parcels import DEFAULT_TOPIC

log = logging.getLogger(__name__)
_FIRST_LOOK_S = 1.0


class Destination:
    __slots__ = ("queues", "turn")

    def __init__(self, queues: Sequence[MessageQueue]) -> None:
        self.queues = queues
        self.turn = RoundRobin(random.randrange(len(queues)))  # noqa: S311 - spreads load


class Destinations:
    def __init__(self, link: Link, default_topic_queues: int) -> None:
        self._link = link
        self._default_topic_queues = default_topic_queues
        self._known: dict[str, Destination] = {}
        self._assumed: set[str] = set()
        self._looking: dict[str, asyncio.Task[Destination]] = {}
        self._doubted: set[str] = set()
        link.routes.on_change(self._changed)

    def known(self, topic: str) -> Destination | None:
        """The way that waits for nothing."""
        return self._known.get(topic)

    async def find(self, topic: str) -> Destination:
        """TopicNotFound if there is none; all who ask at once wait for the same answer."""
        known = self._known.get(topic)
        if known is not None:
            return known
        looking = self._looking.get(topic)
        if looking is None:
            looking = asyncio.create_task(self._look_up(topic))
            looking.add_done_callback(lambda done: self._looked(topic, done))
            self._looking[topic] = looking
        return await asyncio.shield(looking)

    def doubt(self, topic: str) -> None:
        """A broker of this topic failed: ask for the route again, beside."""
        if topic not in self._doubted and self._link.is_running:
            self._doubted.add(topic)
            self._link.spawn(self._refresh(topic))

    async def close(self) -> None:
        for looking in self._looking.values():
            looking.cancel()
        await asyncio.gather(*self._looking.values(), return_exceptions=True)

    def _looked(self, topic: str, looking: asyncio.Task[Destination]) -> None:
        self._looking.pop(topic, None)
        if not looking.cancelled():
            looking.exception()  # Seen, even when all who waited for it have left.

    async def _look_up(self, topic: str) -> Destination:
        try:
            queues = publish_queues(await self._link.routes.refresh(topic))
        except TopicNotFound as missing:
            queues = await self._assume(topic, missing)
        if not queues:
            raise NoRoute(
                f"no broker takes messages to {topic} now: there is no master, or its permissions "
                "forbid writing; start the master, or change the topic's permission"
            )
        return self._set(topic, queues)

    async def _assume(self, topic: str, missing: TopicNotFound) -> list[MessageQueue]:
        try:
            pattern = await self._link.routes.refresh(DEFAULT_TOPIC)
        except TopicNotFound:
            raise missing from None
        if topic not in self._assumed:
            self._assumed.add(topic)
            self._link.spawn(self._until_it_exists(topic))
        return [
            MessageQueue(topic, queue.broker_name, queue.queue_id)
            for queue in pattern.write_queues
            if queue.queue_id < self._default_topic_queues
        ]

    async def _until_it_exists(self, topic: str) -> None:
        backoff = Backoff(_FIRST_LOOK_S, self._link.cluster.route_refresh_s)
        while topic in self._assumed:
            await asyncio.sleep(backoff.next_s())
            try:
                self._changed(await self._link.routes.refresh(topic))
            except ClientError as error:
                log.debug("topic %s is not there yet: %s", topic, error)

    async def _refresh(self, topic: str) -> None:
        try:
            await self._link.routes.refresh(topic)
        except ClientError as error:
            log.debug("the route of %s stays as it was: %s", topic, error)
        finally:
            self._doubted.discard(topic)

    def _changed(self, route: Route) -> None:
        self._assumed.discard(route.topic)
        queues = publish_queues(route)
        if queues:
            self._set(route.topic, queues)
        else:
            self._known.pop(route.topic, None)

    def _set(self, topic: str, queues: Sequence[MessageQueue]) -> Destination:
        known = self._known.get(topic)
        if known is None:
            known = self._known[topic] = Destination(queues)
        else:
            known.queues = queues
        return known


def publish_queues(route: Route) -> Sequence[MessageQueue]:
    """The queues of a topic in the order in which all producers see them."""
    if not route.order_conf:
        return route.write_queues
    queues: list[MessageQueue] = []
    for item in filter(None, route.order_conf.split(";")):
        broker, _, number = item.partition(":")
        if not number.isdigit():
            log.warning("%s has an order configuration nobody can read: %s", route.topic, item)
            return route.write_queues
        queues += [MessageQueue(route.topic, broker, at) for at in range(int(number))]
    return queues
