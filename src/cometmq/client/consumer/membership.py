"""A consumer's place in its group: what it subscribes to, which queues it has, where they begin.

Queues are shared out anew when members or routes change, and every 20 seconds. Every member
computes the shares by itself from the same list of members and queues, so no one needs to lead.
While the list cannot be had, or does not have us in it yet, a member keeps what it has.
"""

import asyncio
import dataclasses
import logging
from collections.abc import Awaitable, Callable, Iterable

import msgspec

from cometmq.protocol.codes import RequestCode
from cometmq.protocol.fastjson import decode_body
from cometmq.protocol.heartbeat import ConsumerData, Heartbeat
from cometmq.protocol.message_queue import MessageQueue
from cometmq.protocol.subscription import TAG, SubscriptionData

from ..allocation import Allocation, queue_order, text_order
from ..backoff import Backoff
from ..errors import ClientError, NoRoute, TopicNotFound, answers_read
from ..link import Link
from ..routes import Route
from .progress import Progress, queue_offset
from .subscriptions import (
    Beginning,
    ConsumeFrom,
    Filter,
    Model,
    Wanted,
    filters_of,
    retry_topic,
    subscription_of,
)

log = logging.getLogger(__name__)
_REBALANCE_S = 20.0
_REBALANCE_SOON_S = 1.0


class _ConsumerIds(msgspec.Struct, rename="camel"):
    consumer_id_list: list[str] = []


@dataclasses.dataclass(frozen=True, kw_only=True)
class Group:
    name: str
    model: Model
    beginning: Beginning
    allocation: Allocation
    is_active: bool
    """Its members pull when they like; else they get messages as they come."""


class Membership:
    def __init__(
        self,
        group: Group,
        wanted: Wanted,
        on_change: Callable[[set[MessageQueue]], Awaitable[None]],
    ) -> None:
        """`on_change` gets all queues of this member, whenever they are others than before."""
        self.group = group
        self.subscriptions = {
            topic: subscription_of(topic, chosen) for topic, chosen in filters_of(wanted).items()
        }
        if group.model is Model.CLUSTERING and not group.is_active:
            name = retry_topic(group.name)
            self.subscriptions[name] = subscription_of(name, "*")
        self.queues: set[MessageQueue] = set()
        self._on_change = on_change
        self._wake = asyncio.Event()
        self._missing_brokers = Backoff(_REBALANCE_SOON_S, _REBALANCE_S)

    def heartbeat(self, client_id: str) -> Heartbeat:
        group = self.group
        data = ConsumerData(
            group.name,
            "CONSUME_ACTIVELY" if group.is_active else "CONSUME_PASSIVELY",
            group.model.value,
            group.beginning.where.value,
            list(self.subscriptions.values()),
        )
        return Heartbeat(client_id, consumer_data_set=[data])

    # -- subscriptions ---------------------------------------------------------------------------

    async def prepare(self, link: Link) -> None:
        """Learn where the topics are, and whether brokers can read our filters."""
        for subscription in list(self.subscriptions.values()):
            await self._prepare(link, subscription)

    async def subscribe(self, link: Link, topic: str, wanted: Filter) -> None:
        before = self.subscriptions.get(topic)
        newer_than = before.sub_version if before is not None else 0
        subscription = subscription_of(topic, wanted, newer_than=newer_than)
        await self._prepare(link, subscription)
        self.subscriptions[topic] = subscription
        self.wake()

    def unsubscribe(self, topic: str) -> None:
        self.subscriptions.pop(topic, None)
        self.wake()

    async def _prepare(self, link: Link, subscription: SubscriptionData) -> None:
        try:
            route = await link.routes.find(subscription.topic)
        except TopicNotFound:
            return  # It may come later.
        if subscription.expression_type != TAG:
            await self._check_filter(link, route, subscription)

    async def _check_filter(self, link: Link, route: Route, subscription: SubscriptionData) -> None:
        """An expression that brokers cannot read is refused now instead of at every pull."""
        body = msgspec.json.encode({
            "clientId": link.client_id,
            "group": self.group.name,
            "subscriptionData": subscription,
        })  # fmt: skip
        for broker_name in route.brokers:
            address = link.routes.any_address_of(broker_name)
            if address is not None:
                await link.ask(address, RequestCode.CHECK_CLIENT_CONFIG, {}, body)

    # -- sharing out -----------------------------------------------------------------------------

    def wake(self) -> None:
        """Share out anew, now."""
        self._wake.set()

    async def run(self, link: Link) -> None:
        while True:
            complete = await self._rebalance_or_tell(link)
            if complete:
                self._missing_brokers.reset()
            wait_s = _REBALANCE_S if complete else self._missing_brokers.next_s()
            try:
                async with asyncio.timeout(wait_s):
                    await self._wake.wait()
            except TimeoutError:
                pass
            self._wake.clear()

    async def _rebalance_or_tell(self, link: Link) -> bool:
        """Whatever goes wrong, an allocation of one's own included: there is a next time."""
        try:
            return await self.rebalance(link)
        except Exception:
            log.exception("group %s: queues cannot be shared out now", self.group.name)
            return False

    async def rebalance(self, link: Link) -> bool:
        """Compute this member's queues. False when it must be tried again soon."""
        queues: set[MessageQueue] = set()
        complete = True
        for topic in list(self.subscriptions):
            share = await self._share_of(link, topic)
            if share is None:
                complete = False
                share = {queue for queue in self.queues if queue.topic == topic}
            queues |= share
        if queues != self.queues:
            log.info("group %s: this member has %d queues", self.group.name, len(queues))
            self.queues = queues
            await self._on_change(queues)
        return complete

    async def _share_of(self, link: Link, topic: str) -> set[MessageQueue] | None:
        """Our queues of a topic; None when that is not known now."""
        try:
            route = await link.routes.find(topic)
            if self.group.model is Model.BROADCASTING:
                return set(route.read_queues)
            members = await self._members(link, route.brokers)
        except TopicNotFound as error:
            log.debug("group %s waits for a topic: %s", self.group.name, error)
            return None
        except ClientError as error:
            log.warning("group %s cannot share out %s now: %s", self.group.name, topic, error)
            return None
        if link.client_id not in members:
            await link.beat()
            return None
        queues = sorted(route.read_queues, key=queue_order)
        return set(
            self.group.allocation(
                self.group.name, link.client_id, queues, sorted(members, key=text_order)
            )
        )

    async def _members(self, link: Link, broker_names: Iterable[str]) -> set[str]:
        """The members as the first broker that answers knows them."""
        error: ClientError = NoRoute(f"no broker for group {self.group.name}")
        for broker_name in sorted(broker_names):
            address = link.routes.any_address_of(broker_name)
            try:
                if address is not None:
                    return await self._members_at(link, address)
            except ClientError as failed:
                error = failed
        raise error

    async def _members_at(self, link: Link, address: str) -> set[str]:
        """Each once: RocketMQ lists one that reconnected twice, until it has noticed that the
        first connection ended. The second share would be nobody's."""
        fields = {"consumerGroup": self.group.name}
        answer = await link.ask(address, RequestCode.GET_CONSUMER_LIST_BY_GROUP, fields)
        with answers_read():
            listed = decode_body(answer.body, _ConsumerIds, "list of members")
        return set(listed.consumer_id_list)


async def start_offset(link: Link, progress: Progress, group: Group, queue: MessageQueue) -> int:
    """Where a member begins to read a queue."""
    where = group.beginning.where
    known = await progress.read(queue, exact=where is not ConsumeFrom.LAST)
    if known is not None:
        return known
    is_retry = queue.topic == retry_topic(group.name)
    if where is ConsumeFrom.FIRST or is_retry:
        return await queue_offset(link, queue, RequestCode.GET_MIN_OFFSET)
    if where is ConsumeFrom.LAST:
        return await queue_offset(link, queue, RequestCode.GET_MAX_OFFSET)
    return await queue_offset(
        link,
        queue,
        RequestCode.SEARCH_OFFSET_BY_TIMESTAMP,
        timestamp=group.beginning.timestamp_ms,
    )
