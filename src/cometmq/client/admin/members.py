"""Who is connected: the members of consumer groups, what they are doing, and producers.

A member is connected to several brokers; it is told once.
"""

from collections.abc import Iterable

import msgspec

from cometmq.protocol.codes import RequestCode, ResponseCode
from cometmq.protocol.message_queue import MessageQueue
from cometmq.protocol.subscription import SubscriptionData

from ..errors import BrokerFailed, ConsumerNotOnline
from ..link import SUCCESS
from .progress import decoded_maps, queues_in
from .reach import RELAY_TIMEOUT_S, BrokerNode, Reach, decoded

_ONLINE_OR_NOT = SUCCESS | {int(ResponseCode.CONSUMER_NOT_ONLINE)}
_KNOWN_OR_NOT = SUCCESS | {int(ResponseCode.SYSTEM_ERROR)}


class Member(msgspec.Struct, frozen=True, rename="camel"):
    client_id: str
    client_addr: str = ""
    language: str = ""
    version: int = 0
    """In the numbering of RocketMQ's MQVersion."""


class GroupMembers(msgspec.Struct, frozen=True, rename="camel"):
    """A consumer group that is online."""

    connection_set: list[Member] = []
    subscription_table: dict[str, SubscriptionData] = {}
    consume_type: str = ""
    message_model: str = ""
    consume_from_where: str = ""

    @property
    def client_ids(self) -> list[str]:
        return [member.client_id for member in self.connection_set]


class OnlineProducer(msgspec.Struct, frozen=True, rename="camel"):
    client_id: str
    remote_ip: str = msgspec.field(name="remoteIP", default="")
    language: str = ""
    version: int = 0
    last_update_timestamp: int = 0
    """When its last heartbeat came."""


class QueueState(msgspec.Struct, frozen=True, rename="camel"):
    """What a member holds of a queue."""

    commit_offset: int = 0
    cached_msg_min_offset: int = 0
    cached_msg_max_offset: int = 0
    cached_msg_count: int = 0
    cached_msg_size_in_mib: int = msgspec.field(name="cachedMsgSizeInMiB", default=0)
    locked: bool = False
    last_lock_timestamp: int = 0
    droped: bool = False
    last_pull_timestamp: int = 0
    last_consume_timestamp: int = 0


class TopicState(msgspec.Struct, frozen=True, rename="camel"):
    """How a member fares with a topic; times in milliseconds."""

    pull_rt: float = msgspec.field(name="pullRT", default=0.0)
    pull_tps: float = msgspec.field(name="pullTPS", default=0.0)
    consume_rt: float = msgspec.field(name="consumeRT", default=0.0)
    consume_ok_tps: float = msgspec.field(name="consumeOKTPS", default=0.0)
    consume_failed_tps: float = msgspec.field(name="consumeFailedTPS", default=0.0)
    consume_failed_msgs: int = 0


class RunningInfo(msgspec.Struct, frozen=True):
    """What a member says of itself."""

    properties: dict[str, str]
    subscriptions: list[SubscriptionData]
    queues: dict[MessageQueue, QueueState]
    topics: dict[str, TopicState]
    stacks: str


class _Producers(msgspec.Struct, rename="camel"):
    connection_set: list[Member] = []


class _AllProducers(msgspec.Struct):
    data: dict[str, list[OnlineProducer]] = {}


class _RunningInfoBody(msgspec.Struct, rename="camel"):
    properties: dict[str, object] = {}
    subscription_set: list[SubscriptionData] = []
    mq_table: dict[str, QueueState] = {}
    status_table: dict[str, TopicState] = {}
    jstack: str | None = None


class Members:
    def __init__(self, reach: Reach) -> None:
        self._reach = reach

    async def of_group(self, group: str, *, skip_unreachable: bool = False) -> GroupMembers:
        """The members of a consumer group and what they subscribe to; ConsumerNotOnline when
        there are none."""
        return _joined(group, await self._by_broker(group, skip_unreachable=skip_unreachable))

    async def running_info(
        self, group: str, client_id: str, *, stacks: bool = False
    ) -> RunningInfo:
        """What a member of a group is doing, told by itself; its threads, too, if asked."""
        fields = {"consumerGroup": group, "clientId": client_id, "jstackEnable": stacks}
        answer = await self._reach.ask(
            await self._broker_of(group, client_id),
            RequestCode.GET_CONSUMER_RUNNING_INFO,
            fields,
            timeout_s=RELAY_TIMEOUT_S,
        )
        body = decoded_maps(answer, _RunningInfoBody, "running info")
        properties = {name: str(value) for name, value in body.properties.items()}
        queues = queues_in(body.mq_table)
        topics = body.status_table
        return RunningInfo(properties, body.subscription_set, queues, topics, body.jstack or "")

    async def producers_of(self, group: str, *, skip_unreachable: bool = False) -> list[Member]:
        """The members of a producer group; none when nobody is there."""
        answers = await self._reach.ask_each(
            await self._reach.brokers(),
            RequestCode.GET_PRODUCER_CONNECTION_LIST,
            {"producerGroup": group},
            accept=_KNOWN_OR_NOT,
            skip_unreachable=skip_unreachable,
        )
        found = []
        for node, answer in answers:
            if answer.code == ResponseCode.SUCCESS:
                found += decoded(answer, _Producers, "producers").connection_set
            elif "not exist" not in (answer.remark or ""):
                raise BrokerFailed(answer.remark, peer=node.address)
        return _once(found)

    async def producers(self, *, skip_unreachable: bool = False) -> dict[str, list[OnlineProducer]]:
        """All producers by their groups."""
        answers = await self._reach.ask_each(
            await self._reach.brokers(),
            RequestCode.GET_ALL_PRODUCER_INFO,
            skip_unreachable=skip_unreachable,
        )
        groups: dict[str, dict[str, OnlineProducer]] = {}
        for _, answer in answers:
            for group, producers in decoded(answer, _AllProducers, "producers").data.items():
                groups.setdefault(group, {}).update({p.client_id: p for p in producers})
        return {group: list(producers.values()) for group, producers in sorted(groups.items())}

    # -- parts -----------------------------------------------------------------------------------

    async def _by_broker(
        self, group: str, *, skip_unreachable: bool
    ) -> list[tuple[BrokerNode, GroupMembers]]:
        answers = await self._reach.ask_each(
            await self._reach.brokers(),
            RequestCode.GET_CONSUMER_CONNECTION_LIST,
            {"consumerGroup": group},
            accept=_ONLINE_OR_NOT,
            skip_unreachable=skip_unreachable,
        )
        return [
            (node, decoded(answer, GroupMembers, "members"))
            for node, answer in answers
            if answer.code == ResponseCode.SUCCESS
        ]

    async def _broker_of(self, group: str, client_id: str) -> BrokerNode:
        """A broker that the member is connected to."""
        found = await self._by_broker(group, skip_unreachable=True)
        for node, members in found:
            if client_id in members.client_ids:
                return node
        online = ", ".join(_joined(group, found).client_ids)
        raise ConsumerNotOnline(f"group {group} has no member {client_id}; there are: {online}")


def _joined(group: str, found: Iterable[tuple[BrokerNode, GroupMembers]]) -> GroupMembers:
    parts = [members for _, members in found]
    if not parts:
        raise ConsumerNotOnline(f"group {group} has no member")
    tables = {topic: sub for part in parts for topic, sub in part.subscription_table.items()}
    members = _once(member for part in parts for member in part.connection_set)
    return msgspec.structs.replace(parts[0], connection_set=members, subscription_table=tables)


def _once(members: Iterable[Member]) -> list[Member]:
    by_id = {member.client_id: member for member in members}
    return [by_id[client_id] for client_id in sorted(by_id)]
