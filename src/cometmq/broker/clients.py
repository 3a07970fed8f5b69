"""Who is connected: producers and consumers by group, as their heartbeats tell.

A client is known by its connection and forgotten when that closes, or after two minutes without a
heartbeat. When a consumer group gains or loses a member, or changes what it subscribes to, all its
members hear of it at once, so that they share the queues anew.
"""

import logging
from collections.abc import Callable, Iterator

import msgspec

from cometmq.protocol.codes import Language, RequestCode
from cometmq.protocol.command import Request
from cometmq.protocol.heartbeat import ConsumerData
from cometmq.protocol.subscription import SubscriptionData
from cometmq.transport.connection import Connection

log = logging.getLogger(__name__)


class Member(msgspec.Struct):
    connection: Connection
    client_id: str
    language: Language
    version: int
    seen_ms: int


class ConsumerGroup(msgspec.Struct):
    """A consumer group that is online."""

    name: str
    consume_type: str
    message_model: str
    consume_from_where: str
    members: dict[Connection, Member] = {}
    subscriptions: dict[str, SubscriptionData] = {}

    def find(self, client_id: str) -> Member | None:
        return next((m for m in self.members.values() if m.client_id == client_id), None)


class Clients:
    def __init__(self, notifies: Callable[[str], bool]) -> None:
        """`notifies` tells whether a group's members want to hear of changes."""
        self._notifies = notifies
        self._consumers: dict[str, ConsumerGroup] = {}
        self._producers: dict[str, dict[Connection, Member]] = {}

    # -- consumers -------------------------------------------------------------------------------

    def consumer_group(self, name: str) -> ConsumerGroup | None:
        return self._consumers.get(name)

    def consumer_groups(self) -> Iterator[ConsumerGroup]:
        return iter(list(self._consumers.values()))

    def subscribers(self, topic: str) -> list[str]:
        return [g.name for g in self._consumers.values() if topic in g.subscriptions]

    def register_consumer(self, member: Member, data: ConsumerData, *, keep: bool) -> bool:
        """Take a heartbeat's word for a group; with `keep` its subscriptions stay as they are.
        Whether anything changed."""
        group = self._consumers.get(data.group_name)
        if group is None:
            group = ConsumerGroup(
                data.group_name, data.consume_type, data.message_model, data.consume_from_where
            )
            self._consumers[data.group_name] = group
        changed = member.connection not in group.members
        group.members[member.connection] = member
        group.consume_type = data.consume_type
        group.message_model = data.message_model
        group.consume_from_where = data.consume_from_where
        if not keep:
            changed |= _update_subscriptions(group, data.subscription_data_set)
        if changed:
            log.info("group %s has %d members", group.name, len(group.members))
            self._notify(group)
        return changed

    def unregister_consumer(self, name: str, connection: Connection) -> None:
        group = self._consumers.get(name)
        if group is None or group.members.pop(connection, None) is None:
            return
        if not group.members:
            del self._consumers[name]
        log.info("group %s has %d members", name, len(group.members))
        self._notify(group)

    def _notify(self, group: ConsumerGroup) -> None:
        if not self._notifies(group.name):
            return
        notice = Request(RequestCode.NOTIFY_CONSUMER_IDS_CHANGED, {"consumerGroup": group.name})
        for connection in group.members:
            connection.tell(notice)

    # -- producers -------------------------------------------------------------------------------

    def producer_groups(self) -> dict[str, list[Member]]:
        return {name: list(members.values()) for name, members in self._producers.items()}

    def register_producer(self, name: str, member: Member) -> None:
        self._producers.setdefault(name, {})[member.connection] = member

    def unregister_producer(self, name: str, connection: Connection) -> None:
        members = self._producers.get(name)
        if members is not None:
            members.pop(connection, None)
            if not members:
                del self._producers[name]

    # -- end -------------------------------------------------------------------------------------

    def forget(self, connection: Connection) -> None:
        """The connection closed."""
        for name, group in list(self._consumers.items()):
            if connection in group.members:
                self.unregister_consumer(name, connection)
        for name, members in list(self._producers.items()):
            if connection in members:
                self.unregister_producer(name, connection)

    def expire(self, before_ms: int) -> None:
        """Part with clients that have not been heard of since; they are not there any more."""
        tables = [group.members for group in self._consumers.values()]
        tables += self._producers.values()
        silent = {c for table in tables for c, m in table.items() if m.seen_ms < before_ms}
        for connection in silent:
            log.warning("%s is silent and taken for gone", connection.peer)
            connection.close()


def _update_subscriptions(group: ConsumerGroup, wanted: list[SubscriptionData]) -> bool:
    """Take over newer subscriptions and drop those that are gone. Whether topics came or went."""
    changed = False
    for subscription in wanted:
        known = group.subscriptions.get(subscription.topic)
        if known is None:
            changed = True
        if known is None or subscription.sub_version >= known.sub_version:
            group.subscriptions[subscription.topic] = subscription
    topics = {subscription.topic for subscription in wanted}
    for topic in group.subscriptions.keys() - topics:
        del group.subscriptions[topic]
        changed = True
    return changed
