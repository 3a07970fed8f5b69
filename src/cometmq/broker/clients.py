"""Who is connected: producers and consumers by group, as their heartbeats tell.

A client is known by its connection and forgotten when that closes, or after two minutes without a
heartbeat. When a consumer group gains or loses a member, or changes what it subscribes to, all its
members hear of it at once, so that they share the queues anew.
"""

import logging
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

import msgspec

from cometmq.protocol.codes import Language, RequestCode
from cometmq.protocol.command import Request
from cometmq.protocol.heartbeat import ConsumerData
from cometmq.protocol.subscription import SubscriptionData
from cometmq.transport.connection import Connection

log = logging.getLogger(__name__)
MEMBERSHIPS_MAX = 200_000
"""Of clients in groups, producers and consumers together."""
SUBSCRIPTIONS_MAX = 500_000
"""Of all members of all groups together."""


class NoRoom(Exception):
    """More clients or subscriptions than are kept; the text says which."""


class Member(msgspec.Struct):
    connection: Connection
    client_id: str
    language: Language
    version: int
    seen_ms: int


Members = dict[Connection, Member]
Subscriptions = dict[str, SubscriptionData]


class _Membership(NamedTuple):
    consumes: bool
    group: str


class ConsumerGroup(msgspec.Struct):
    """A consumer group that is online."""

    name: str
    consume_type: str
    message_model: str
    consume_from_where: str
    members: Members = {}
    wanted: dict[Connection, Subscriptions] = {}
    """What each member subscribes to."""
    subscriptions: Subscriptions = {}
    """All of it together; where members differ, the newest word counts."""
    conflicts: tuple[str, ...] = ()
    """Topics that not all members subscribe to in the same way."""
    fingerprint: int | None = None
    """Of its last heartbeat: tells whether subscriptions changed."""

    def find(self, client_id: str) -> Member | None:
        return next((m for m in self.members.values() if m.client_id == client_id), None)

    def subscription(self, connection: Connection, topic: str) -> SubscriptionData | None:
        """What a member wants of a topic; of one that has not told, what its group wants."""
        return self.wanted.get(connection, self.subscriptions).get(topic)

    def want(self, connection: Connection, subscriptions: Subscriptions | None) -> None:
        """A member subscribes so, or (None) is gone."""
        if subscriptions is None:
            self.wanted.pop(connection, None)
        else:
            self.wanted[connection] = subscriptions
        self.subscriptions = _together(self.wanted.values())
        self.conflicts = tuple(topic for topic in self.subscriptions if len(self._ways(topic)) > 1)

    def _ways(self, topic: str) -> set[tuple[str, str] | None]:
        found = (subscriptions.get(topic) for subscriptions in self.wanted.values())
        return {None if one is None else (one.expression_type, one.sub_string) for one in found}


class Clients:
    def __init__(self, notifies: Callable[[str], bool]) -> None:
        """`notifies` tells whether a group's members want to hear of changes."""
        self._notifies = notifies
        self._consumers: dict[str, ConsumerGroup] = {}
        self._producers: dict[str, Members] = {}
        self._producers_by_id: dict[str, Member] = {}
        self._ids: dict[Connection, str] = {}
        """By which name each connection is found among them: one, as long as it is open."""
        self._joined: dict[Connection, set[_Membership]] = {}
        self._memberships = 0
        self._subscriptions = 0

    # -- consumers -------------------------------------------------------------------------------

    def consumer_group(self, name: str) -> ConsumerGroup | None:
        return self._consumers.get(name)

    def consumer_groups(self) -> Iterator[ConsumerGroup]:
        return iter(list(self._consumers.values()))

    def subscribers(self, topic: str) -> list[str]:
        return [g.name for g in self._consumers.values() if topic in g.subscriptions]

    def register_consumer(self, member: Member, data: ConsumerData, *, keep: bool) -> bool:
        """Take a heartbeat's word for a group; with `keep` its subscriptions stay as they are.
        Whether anything changed. NoRoom leaves everything as it was."""
        group = self._consumers.get(data.group_name) or ConsumerGroup(
            data.group_name, data.consume_type, data.message_model, data.consume_from_where
        )
        wanted = [] if keep else data.subscription_data_set
        if not keep:
            self._require_room(group, member, len(wanted))
        changed = self._join(_Membership(True, group.name), group.members, member)
        self._consumers[group.name] = group
        group.consume_type = data.consume_type
        group.message_model = data.message_model
        group.consume_from_where = data.consume_from_where
        if not keep:
            changed |= self._subscribe(group, member, {s.topic: s for s in wanted})
        if changed:
            log.info("group %s has %d members", group.name, len(group.members))
            self._notify(group)
        return changed

    def _subscribe(self, group: ConsumerGroup, member: Member, wanted: Subscriptions) -> bool:
        """Whether topics came or went."""
        known = group.wanted.get(member.connection, {})
        # Heartbeats may overtake one another.
        wanted = _together([{t: s for t, s in known.items() if t in wanted}, wanted])
        if known == wanted and member.connection in group.wanted:
            return False
        self._subscriptions += len(wanted) - len(known)
        conflicts = group.conflicts
        group.want(member.connection, wanted)
        if group.conflicts and group.conflicts != conflicts:
            log.warning(
                "the members of group %s subscribe differently to %s: messages that one of them "
                "wants may go to another, who does not", group.name, ", ".join(group.conflicts),
            )  # fmt: skip
        return known.keys() != wanted.keys()

    def _require_room(self, group: ConsumerGroup, member: Member, count: int) -> None:
        growth = count - len(group.wanted.get(member.connection, ()))
        if self._subscriptions + growth > SUBSCRIPTIONS_MAX and growth > 0:
            raise NoRoom(f"there are {self._subscriptions} subscriptions already")

    def unregister_consumer(self, name: str, connection: Connection) -> None:
        group = self._consumers.get(name)
        if group is None or not self._leave(_Membership(True, name), group.members, connection):
            return
        self._subscriptions -= len(group.wanted.get(connection, ()))
        group.want(connection, None)
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

    def producers(self, group: str) -> list[Member]:
        return list(self._producers.get(group, {}).values())

    def producer(self, client_id: str) -> Member | None:
        """A producer by its own name."""
        return self._producers_by_id.get(client_id)

    def producer_groups(self) -> dict[str, list[Member]]:
        return {name: list(members.values()) for name, members in self._producers.items()}

    def register_producer(self, name: str, member: Member) -> None:
        """Take a heartbeat's word for a group. NoRoom leaves everything as it was."""
        members = self._producers.get(name, {})
        self._join(_Membership(False, name), members, member)
        self._producers[name] = members
        if self._ids.get(member.connection) != member.client_id:
            self._forget_id(member.connection)
            self._ids[member.connection] = member.client_id
        self._producers_by_id[member.client_id] = member

    def unregister_producer(self, name: str, connection: Connection) -> None:
        members = self._producers.get(name)
        if members is None or not self._leave(_Membership(False, name), members, connection):
            return
        if not members:
            del self._producers[name]

    def _forget_id(self, connection: Connection) -> None:
        client_id = self._ids.pop(connection, None)
        # A client that came back has it already with its new connection.
        found = self._producers_by_id.get(client_id) if client_id is not None else None
        if found is not None and found.connection is connection:
            del self._producers_by_id[found.client_id]

    # -- memberships -----------------------------------------------------------------------------

    def _join(self, membership: _Membership, members: Members, member: Member) -> bool:
        """Whether the client is new in the group."""
        is_new = member.connection not in members
        if is_new:
            if self._memberships >= MEMBERSHIPS_MAX:
                raise NoRoom(f"there are {self._memberships} members of groups already")
            self._memberships += 1
            self._joined.setdefault(member.connection, set()).add(membership)
        members[member.connection] = member
        return is_new

    def _leave(self, membership: _Membership, members: Members, connection: Connection) -> bool:
        """Whether the client was in the group."""
        if members.pop(connection, None) is None:
            return False
        self._memberships -= 1
        joined = self._joined[connection]
        joined.discard(membership)
        if not joined:
            del self._joined[connection]
        return True

    def forget(self, connection: Connection) -> None:
        """The connection closed."""
        self._forget_id(connection)
        for consumes, name in list(self._joined.get(connection, ())):
            if consumes:
                self.unregister_consumer(name, connection)
            else:
                self.unregister_producer(name, connection)

    def expire(self, before_ms: int) -> None:
        """Part with clients that have not been heard of since; they are not there any more."""
        tables = [group.members for group in self._consumers.values()]
        tables += self._producers.values()
        silent = {c for table in tables for c, m in table.items() if m.seen_ms < before_ms}
        for connection in silent:
            log.warning("%s is silent and taken for gone", connection.peer)
            self.forget(connection)
            connection.close()


def _together(members: Iterable[Subscriptions]) -> Subscriptions:
    """What a group subscribes to, taken over all its members."""
    newest: Subscriptions = {}
    for subscriptions in members:
        for topic, one in subscriptions.items():
            known = newest.get(topic)
            if known is None or one.sub_version >= known.sub_version:
                newest[topic] = one
    return newest
