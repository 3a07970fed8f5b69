"""Consumer groups: which there are, their settings, how far they have come.

Settings and offsets are kept by each broker for itself; what is asked about a group is asked of all
brokers and joined. Members that are online are in `members`.
"""

from collections.abc import Collection
from typing import Any

import msgspec

from cometmq.protocol.codes import RequestCode
from cometmq.protocol.group_config import GroupConfig, GroupConfigs
from cometmq.protocol.message_queue import MessageQueue
from cometmq.protocol.names import DEAD_LETTER_PREFIX, RETRY_PREFIX
from cometmq.protocol.routes import TopicList
from cometmq.protocol.subscription import SubscriptionData

from ..errors import GroupNotFound, IllegalArgument, NotSupported
from .progress import GroupProgress, group_progress
from .reach import Reach, decoded, together
from .topics import Topics

_SYSTEM = frozenset(
    {"TOOLS_CONSUMER", "FILTERSRV_CONSUMER", "SELF_TEST_C_GROUP", "SELF_TEST_P_GROUP",
     "__MONITOR_CONSUMER", "CLIENT_INNER_PRODUCER", "CID_ONS-HTTP-PROXY"}
)  # fmt: skip
_SYSTEM_PREFIXES = ("CID_ONSAPI_", "CID_RMQ_SYS_")


class TimeSpan(msgspec.Struct, frozen=True, rename="camel"):
    """Of one queue: from when to when its messages are, and where in that time a group is."""

    message_queue: MessageQueue
    min_time_stamp: int = -1
    max_time_stamp: int = -1
    consume_time_stamp: int = -1
    delay_time: int = 0
    """For how many milliseconds the next message has been waiting."""


class _TimeSpans(msgspec.Struct, rename="camel"):
    consume_time_span_set: list[TimeSpan] = []


class _Subscription(msgspec.Struct, rename="camel"):
    subscription_data: SubscriptionData | None = None


class Groups:
    def __init__(self, reach: Reach, topics: Topics) -> None:
        self._reach = reach
        self._topics = topics

    # -- reads -----------------------------------------------------------------------------------

    async def names(
        self, *, cluster: str = "", internal: bool = False, skip_unreachable: bool = False
    ) -> list[str]:
        """The names of all consumer groups that have settings. `internal`: the system's, too."""
        nodes = await self._reach.brokers(cluster)
        code = RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG
        answers = await self._reach.ask_each(nodes, code, skip_unreachable=skip_unreachable)
        tables = [decoded(a, GroupConfigs, "groups").subscription_group_table for _, a in answers]
        names = {name for table in tables for name in table}
        return sorted(name for name in names if internal or not _is_system(name))

    async def config(
        self, group: str, *, cluster: str = "", brokers: Collection[str] = ()
    ) -> dict[str, GroupConfig]:
        """The settings at every broker that has the group, by broker name."""
        nodes = await self._reach.brokers(cluster, brokers)
        # Asked for one group, RocketMQ creates it where it is missing; asked for all, it does not.
        code = RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG
        found = {}
        for node, answer in await self._reach.ask_each(nodes, code):
            table = decoded(answer, GroupConfigs, "groups").subscription_group_table
            if group in table:
                found[node.name] = table[group]
        if not found:
            raise GroupNotFound(f"no broker has group {group}")
        return found

    async def progress(
        self, group: str, topic: str = "", *, skip_unreachable: bool = False
    ) -> GroupProgress:
        """How far the group is in every queue of its topics, or of one; its lag, and its rate."""
        answers = await self._reach.ask_each(
            await self._reach.brokers(),
            RequestCode.GET_CONSUME_STATS,
            {"consumerGroup": group, "topic": topic or None},
            skip_unreachable=skip_unreachable,
        )
        return group_progress(answer for _, answer in answers)

    async def topics(self, group: str, *, skip_unreachable: bool = False) -> list[str]:
        """The topics in which the group has offsets."""
        nodes = await self._reach.brokers()
        code, fields = RequestCode.QUERY_TOPICS_BY_CONSUMER, {"group": group}
        try:
            answers = await self._reach.ask_each(
                nodes, code, fields, skip_unreachable=skip_unreachable
            )
        except NotSupported:  # Brokers before 5.0 only tell together with the progress in them.
            return (await self.progress(group, skip_unreachable=skip_unreachable)).topics
        lists = [decoded(answer, TopicList, "topic list").topic_list for _, answer in answers]
        return sorted({topic for listed in lists for topic in listed})

    async def subscription(self, group: str, topic: str) -> SubscriptionData | None:
        """What the group, if it is online, wants of a topic."""
        nodes = await self._reach.holders(topic)
        fields = {"group": group, "topic": topic}
        code = RequestCode.QUERY_SUBSCRIPTION_BY_CONSUMER
        for _, answer in await self._reach.ask_each(nodes, code, fields):
            found = decoded(answer, _Subscription, "subscription").subscription_data
            if found is not None:
                return found
        return None

    async def time_spans(self, group: str, topic: str) -> list[TimeSpan]:
        """By queue: from when to when messages are, and where the group is."""
        nodes = await self._reach.holders(topic)
        fields = {"group": group, "topic": topic}
        answers = await self._reach.ask_each(nodes, RequestCode.QUERY_CONSUME_TIME_SPAN, fields)
        return [
            span
            for _, answer in answers
            for span in decoded(answer, _TimeSpans, "time spans").consume_time_span_set
        ]

    # -- changes ---------------------------------------------------------------------------------

    async def create(
        self, group: str, *, cluster: str = "", brokers: Collection[str] = (), **settings: Any
    ) -> None:
        """Create a group; one that is there gets these settings, and the defaults of all others.
        Settings are the fields of `GroupConfig`, as in `retry_max_times=3`."""
        wanted = _with(GroupConfig(group), settings)
        nodes = await self._reach.targets(cluster, brokers)
        code = RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP
        await self._reach.ask_each(nodes, code, body=msgspec.json.encode(wanted))

    async def update(
        self, group: str, *, cluster: str = "", brokers: Collection[str] = (), **settings: Any
    ) -> None:
        """Change some settings of a group and leave the others."""
        nodes = {node.name: node for node in await self._reach.targets(cluster, brokers)}
        current = await self.config(group, cluster=cluster, brokers=brokers)
        code = RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP
        # Attributes go as changes: those that are not named stay.
        wanted = {n: _with(c, {"attributes": {}} | settings) for n, c in current.items()}
        await together(
            *(
                self._reach.ask(nodes[name], code, body=msgspec.json.encode(config))
                for name, config in wanted.items()
            )
        )

    async def delete(
        self,
        group: str,
        *,
        cluster: str = "",
        keep_offsets: bool = False,
        keep_topics: bool = False,
    ) -> None:
        """Delete a group, its offsets, and its topics for retries and dead letters."""
        nodes = await self._reach.targets(cluster)
        # Before 5.0 the same had another name.
        clean = not keep_offsets
        fields = {"groupName": group, "cleanOffset": clean, "removeOffset": clean}
        await self._reach.ask_each(nodes, RequestCode.DELETE_SUBSCRIPTIONGROUP, fields)
        if not keep_topics:
            for prefix in (RETRY_PREFIX, DEAD_LETTER_PREFIX):
                await self._topics.delete(prefix + group, cluster=cluster)


def _is_system(group: str) -> bool:
    return group in _SYSTEM or group.startswith(_SYSTEM_PREFIXES)


def _with(config: GroupConfig, settings: dict[str, Any]) -> GroupConfig:
    known = [name for name in GroupConfig.__struct_fields__ if name != "group_name"]
    unknown = sorted(settings.keys() - set(known))
    if unknown:
        raise IllegalArgument(
            f"no setting of a group: {', '.join(unknown)}; there are: {', '.join(known)}"
        )
    try:
        return msgspec.convert(msgspec.to_builtins(config) | _wire_names(settings), GroupConfig)
    except msgspec.ValidationError as error:
        raise IllegalArgument(f"group {config.group_name}: {error}") from None


def _wire_names(settings: dict[str, Any]) -> dict[str, Any]:
    names = dict(
        zip(GroupConfig.__struct_fields__, GroupConfig.__struct_encode_fields__, strict=True)
    )
    return {names[name]: value for name, value in settings.items()}
