"""Topics: which there are, their settings and queues, who reads them.

Settings are kept by each broker for itself, so changes go to all brokers of one cluster or to those
that are named. The order of a topic's queues is kept by the NameServers.
"""

import enum
from collections.abc import Collection, Mapping

import msgspec

from cometmq.protocol.codes import RequestCode
from cometmq.protocol.errors import IllegalMessage
from cometmq.protocol.names import DEAD_LETTER_PREFIX, RETRY_PREFIX, check_topic
from cometmq.protocol.routes import TopicList, TopicRoute
from cometmq.protocol.topic_config import PERM_MASK, QUEUES_MAX, TopicConfig, TopicConfigs

from ..errors import IllegalArgument, NotSupported, TopicNotFound
from .namesrvs import ORDER_TOPICS, Namesrvs
from .progress import TopicStats, topic_stats
from .reach import BrokerNode, Reach, decoded, holders_in, together

QUEUES = 8
"""Of a topic for which no other number is given, as RocketMQ's tools do."""
_SYSTEM_PREFIX = "rmq_sys_"
_TEMPLATE = "TBW102"


class Permission(enum.IntFlag):
    """What clients may do with a topic."""

    NONE = 0
    WRITE = 2
    READ = 4
    READ_WRITE = 6


class _GroupList(msgspec.Struct, rename="camel"):
    group_list: list[str] = []


class Topics:
    def __init__(self, reach: Reach, namesrvs: Namesrvs) -> None:
        self._reach = reach
        self._namesrvs = namesrvs

    # -- reads -----------------------------------------------------------------------------------

    async def names(self, *, cluster: str = "", internal: bool = False) -> list[str]:
        """The names of all topics. `internal`: also those of the system, and those of groups for
        retries and dead letters."""
        if cluster:
            code, fields = RequestCode.GET_TOPICS_BY_CLUSTER, {"cluster": cluster}
        else:
            code, fields = RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER, {}
        answer = await self._reach.link.ask_namesrv(code, fields)
        names = set(decoded(answer, TopicList, "topic list").topic_list)
        if names and not internal:
            names = {name for name in names - await self._system() if not _is_internal(name)}
        return sorted(names)

    async def route(self, topic: str) -> TopicRoute:
        """The brokers and queues of a topic as the NameServer has them."""
        return await self._reach.route(topic)

    async def clusters(self, topic: str) -> list[str]:
        """The clusters that have the topic."""
        return sorted({data.cluster for data in (await self.route(topic)).broker_datas})

    async def stats(self, topic: str, route: TopicRoute | None = None) -> TopicStats:
        """What every queue has, and how fast messages come in; as the brokers of a route tell it,
        if one is given."""
        route = route or await self._reach.route(topic)
        nodes = holders_in(route, topic)
        fields = {"topic": topic}
        answers = await self._reach.ask_each(nodes, RequestCode.GET_TOPIC_STATS_INFO, fields)
        return topic_stats(answer for _, answer in answers)

    async def config(
        self, topic: str, *, cluster: str = "", brokers: Collection[str] = ()
    ) -> dict[str, TopicConfig]:
        """The settings at every broker that has the topic, by broker name."""
        nodes = await self._reach.brokers(cluster, brokers)
        found = await together(*(self._config_at(node, topic) for node in nodes))
        configs = {n.name: config for n, config in zip(nodes, found, strict=True) if config}
        if not configs:
            raise TopicNotFound(f"no broker has topic {topic}")
        return configs

    async def groups(self, topic: str) -> list[str]:
        """The groups that read the topic or have offsets in it, online or not."""
        nodes = await self._reach.holders(topic)
        fields = {"topic": topic}
        answers = await self._reach.ask_each(nodes, RequestCode.QUERY_TOPIC_CONSUME_BY_WHO, fields)
        lists = [decoded(answer, _GroupList, "group list").group_list for _, answer in answers]
        return sorted({group for listed in lists for group in listed})

    # -- changes ---------------------------------------------------------------------------------

    async def create(
        self,
        topic: str,
        *,
        queues: int = QUEUES,
        read_queues: int | None = None,
        write_queues: int | None = None,
        permission: int = Permission.READ_WRITE,
        ordered: bool = False,
        attributes: Mapping[str, str] | None = None,
        cluster: str = "",
        brokers: Collection[str] = (),
    ) -> None:
        """Create a topic; one that is there gets these settings. `ordered`: producers that go by
        the order of queues keep it when a broker is away. `attributes` as in
        `{"message.type": "FIFO"}`."""
        wanted = TopicConfig(
            topic,
            queues if read_queues is None else read_queues,
            queues if write_queues is None else write_queues,
            permission,
            order=ordered,
        )
        _check(wanted)
        nodes = await self._reach.targets(cluster, brokers)
        await self._write(dict.fromkeys(nodes, wanted), attributes or {})
        if ordered:
            await self._set_order(topic, nodes, wanted.write_queue_nums)

    async def update(
        self,
        topic: str,
        *,
        read_queues: int | None = None,
        write_queues: int | None = None,
        permission: int | None = None,
        attributes: Mapping[str, str | None] | None = None,
        cluster: str = "",
        brokers: Collection[str] = (),
    ) -> None:
        """Change some settings of a topic and leave the others; an attribute that is None is
        removed."""
        changes = {
            "read_queue_nums": read_queues, "write_queue_nums": write_queues, "perm": permission,
        }  # fmt: skip
        given = {name: value for name, value in changes.items() if value is not None}
        nodes = {node.name: node for node in await self._reach.targets(cluster, brokers)}
        current = await self.config(topic, cluster=cluster, brokers=brokers)
        wanted = {nodes[name]: msgspec.structs.replace(c, **given) for name, c in current.items()}
        for config in wanted.values():
            _check(config)
        await self._write(wanted, attributes or {})

    async def delete(self, topic: str, *, cluster: str = "") -> None:
        """Delete a topic with its messages and its order; one that is not there, or only in part,
        counts as deleted after it."""
        nodes = await self._reach.targets(cluster)
        await self._reach.ask_each(nodes, RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": topic})
        fields = {"topic": topic, "clusterName": cluster or None}
        await self._reach.ask_namesrvs(RequestCode.DELETE_TOPIC_IN_NAMESRV, fields)
        await self.set_order(topic, None)

    async def order(self, topic: str) -> dict[str, int]:
        """The number of queues at each broker of a topic whose order matters; else nothing."""
        return _parse_order(await self._namesrvs.get(ORDER_TOPICS, topic) or "")

    async def set_order(self, topic: str, queues: Mapping[str, int] | None) -> None:
        """Say how many queues of a topic each broker has, by name; None: order does not matter."""
        if queues is None:
            await self._namesrvs.delete(ORDER_TOPICS, topic)
        else:
            text = ";".join(f"{broker}:{count}" for broker, count in queues.items())
            await self._namesrvs.put(ORDER_TOPICS, topic, text)

    # -- parts -----------------------------------------------------------------------------------

    async def _system(self) -> set[str]:
        """What brokers and clusters made for themselves. Those that are away have the same."""
        nodes = await self._reach.brokers()
        code = RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_BROKER
        answers = await self._reach.ask_each(nodes, code, skip_unreachable=True)
        told = [answer for _, answer in answers]
        told.append(await self._reach.link.ask_namesrv(RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_NS))
        return {name for a in told for name in decoded(a, TopicList, "topic list").topic_list}

    async def _config_at(self, node: BrokerNode, topic: str) -> TopicConfig | None:
        fields = {"topic": topic}
        try:
            answer = await self._reach.ask(node, RequestCode.GET_TOPIC_CONFIG, fields)
        except TopicNotFound:
            return None
        except NotSupported:  # Brokers before 5.0 only tell all of their topics.
            answer = await self._reach.ask(node, RequestCode.GET_ALL_TOPIC_CONFIG)
            return decoded(answer, TopicConfigs, "topics").topic_config_table.get(topic)
        return decoded(answer, TopicConfig, "topic")

    async def _write(
        self, wanted: Mapping[BrokerNode, TopicConfig], attributes: Mapping[str, str | None]
    ) -> None:
        code, changes = RequestCode.UPDATE_AND_CREATE_TOPIC, _attribute_changes(attributes)
        await together(
            *(self._reach.ask(n, code, _fields(config, changes)) for n, config in wanted.items())
        )

    async def _set_order(self, topic: str, nodes: Collection[BrokerNode], queues: int) -> None:
        """Brokers that are not among them keep what they had."""
        current = await self.order(topic)
        await self.set_order(topic, current | {node.name: queues for node in nodes})


def _check(config: TopicConfig) -> None:
    try:
        check_topic(config.topic_name)
    except IllegalMessage as error:
        raise IllegalArgument(str(error)) from None
    for count in (config.read_queue_nums, config.write_queue_nums):
        if not 1 <= count <= QUEUES_MAX:
            raise IllegalArgument(f"{count} queues: a topic has 1 to {QUEUES_MAX}")
    if not 0 <= config.perm <= PERM_MASK:
        raise IllegalArgument(f"permission {config.perm}: see Permission for those there are")


def _fields(config: TopicConfig, attribute_changes: str) -> dict[str, object]:
    return {
        "topic": config.topic_name,
        "defaultTopic": _TEMPLATE,
        "readQueueNums": config.read_queue_nums,
        "writeQueueNums": config.write_queue_nums,
        "perm": int(config.perm),
        "topicFilterType": config.topic_filter_type,
        "topicSysFlag": config.topic_sys_flag,
        "order": config.order,
        "attributes": attribute_changes,
    }


def _attribute_changes(attributes: Mapping[str, str | None]) -> str:
    return ",".join(
        f"-{name}" if value is None else f"+{name}={value}" for name, value in attributes.items()
    )


def _is_internal(name: str) -> bool:
    return name.startswith((RETRY_PREFIX, DEAD_LETTER_PREFIX, _SYSTEM_PREFIX))


def _parse_order(text: str) -> dict[str, int]:
    pairs = [entry.rpartition(":") for entry in text.split(";") if entry]
    return {broker: int(count) for broker, _, count in pairs if count.isdigit()}
