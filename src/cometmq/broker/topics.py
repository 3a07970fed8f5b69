"""The topics of a broker: who may use them, and how many queues they have."""

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping

import msgspec

from cometmq.clock import Clock
from cometmq.protocol import names
from cometmq.protocol.data_version import DataVersion
from cometmq.protocol.names import DEAD_LETTER_PREFIX, RETRY_PREFIX, SYSTEM_PREFIX, check_topic
from cometmq.protocol.topic_config import (
    PERM_INHERIT,
    PERM_READ,
    PERM_WRITE,
    QUEUES_MAX,
    TopicConfig,
    TopicConfigs,
)
from cometmq.store.config_file import ConfigFile

from .config import BrokerConfig
from .persistent import Persistent

log = logging.getLogger(__name__)

TEMPLATE_TOPIC = "TBW102"
"""Clients name it as the pattern after which a missing topic is made."""
SCHEDULE_TOPIC = "SCHEDULE_TOPIC_XXXX"
TIMER_TOPIC = "rmq_sys_wheel_timer"
HALF_TOPIC = names.HALF_TOPIC
HALF_DONE_TOPIC = names.HALF_DONE_TOPIC
CHECK_EXCEEDED_TOPIC = "TRANS_CHECK_MAX_TIME_TOPIC"
SELF_TEST_TOPIC = "SELF_TEST_TOPIC"
OFFSET_MOVED_TOPIC = "OFFSET_MOVED_EVENT"
BENCHMARK_TOPIC = "BenchmarkTest"
READ_WRITE = PERM_READ | PERM_WRITE

NOT_FOR_CLIENTS = frozenset(
    (
        SCHEDULE_TOPIC, TIMER_TOPIC, HALF_TOPIC, HALF_DONE_TOPIC, CHECK_EXCEEDED_TOPIC,
        SELF_TEST_TOPIC, OFFSET_MOVED_TOPIC, names.RAFT_TABLES_TOPIC,
    )
)  # fmt: skip
"""Topics that only the broker itself writes to."""


class Topics(Persistent):
    def __init__(
        self, config: BrokerConfig, delay_levels: int, file: ConfigFile | None, clock: Clock
    ) -> None:
        super().__init__(file)
        self.on_change: Callable[[], None] = lambda: None
        """Called when NameServers should hear of a topic."""
        self.news: set[str] | None = None
        """Topics that changed, where somebody collects them."""
        self.version = DataVersion(0, clock.now_ms(), 0)
        self._config = config
        self._clock = clock
        self._table: dict[str, TopicConfig] = {}
        self.system = frozenset(topic.topic_name for topic in _system_topics(config, delay_levels))
        self._load(delay_levels)

    def _load(self, delay_levels: int) -> None:
        saved: TopicConfigs | None = self.load_as(TopicConfigs)
        if saved is not None:
            self._table = dict(saved.topic_config_table)
            self.version = saved.data_version
        for topic in _system_topics(self._config, delay_levels):
            if self._table.get(topic.topic_name) != topic:
                self._table[topic.topic_name] = topic
                self.touch()

    def content(self) -> TopicConfigs:
        return TopicConfigs(self._table, self.version)

    def told(self) -> TopicConfigs:
        """What NameServers hear: no topic is for more than the whole broker is."""
        allowed = self._config.permission
        if allowed & READ_WRITE == READ_WRITE:
            return self.content()
        table = {
            name: msgspec.structs.replace(topic, perm=topic.perm & allowed)
            for name, topic in self._table.items()
        }
        return TopicConfigs(table, self.version)

    def adopt(self, queues: Iterable[tuple[str, int]]) -> None:
        """Take in topics that the store has messages of and the file does not know: it was lost,
        or is older than they are."""
        found: dict[str, int] = {}
        for name, queue_id in queues:
            if name not in self._table:
                found[name] = max(found.get(name, 0), queue_id + 1)
        for name, count in found.items():
            log.warning("topic %s is in the store but not in topics.json: %d queues", name, count)
            self._put(TopicConfig(name, count, count))

    def copy(self, told: TopicConfigs) -> list[str]:
        """Take over a master's topics and their version; those that it does not have any more."""
        system = {name: self._table[name] for name in self.system if name in self._table}
        table = {**system, **told.topic_config_table}
        if self.version == told.data_version and self._table == table:
            return []
        gone = [name for name in self._table if name not in table]
        self._table, self.version = table, told.data_version
        self.touch()
        self.save()
        self.on_change()
        return gone

    def take(self, changes: Mapping[str, TopicConfig | None], version: DataVersion) -> None:
        """Take over what changed at the leader of a group; None: it is deleted."""
        for name, topic in changes.items():
            if topic is None:
                self._table.pop(name, None)
            else:
                self._table[name] = topic
        self.version = version
        self.touch()
        self.on_change()

    def take_news(self) -> set[str]:
        news, self.news = self.news or set(), set()
        return news

    def bring_back(self, news: set[str]) -> None:
        """They could not be told yet."""
        self.news = news | (self.news or set())

    def begin_epoch(self, epoch: int) -> None:
        """NameServers believe the broker of the newest epoch, whoever speaks last."""
        self.version = DataVersion(epoch, self._clock.now_ms(), self.version.counter + 1)
        self.touch()

    def reconfigure(self, config: BrokerConfig) -> None:
        self._config = config

    def __iter__(self) -> Iterator[TopicConfig]:
        return iter(list(self._table.values()))

    def __len__(self) -> int:
        return len(self._table)

    def get(self, name: str) -> TopicConfig | None:
        return self._table.get(name)

    def is_system(self, name: str) -> bool:
        return name in self.system or name in NOT_FOR_CLIENTS or name.startswith(SYSTEM_PREFIX)

    def create_for_send(self, name: str, template: str, queues: int) -> TopicConfig | None:
        """A topic made after a template topic, if that allows it; None if not."""
        pattern = self._table.get(template)
        if pattern is None or not pattern.perm & PERM_INHERIT:
            return None
        if template == TEMPLATE_TOPIC and not self._config.auto_create_topics:
            return None
        count = max(0, min(queues, pattern.write_queue_nums))
        if not count:
            return None
        return self._create(
            TopicConfig(name, count, count, pattern.perm & ~PERM_INHERIT, pattern.topic_filter_type)
        )

    def create_for_retry(self, name: str, queues: int) -> TopicConfig | None:
        """The retry or dead-letter topic of a group."""
        known = self._table.get(name)
        if known is not None:
            return known
        return self._create(TopicConfig(name, queues, queues, READ_WRITE))

    def _create(self, topic: TopicConfig) -> TopicConfig | None:
        if len(self._table) >= self._config.topics_max:
            log.error("topic %s refused: there are %d", topic.topic_name, len(self._table))
            return None
        check_topic(topic.topic_name)
        log.info("new topic %s with %d queues", topic.topic_name, topic.write_queue_nums)
        self._put(topic)
        return topic

    def update(self, *topics: TopicConfig) -> None:
        """Create or change topics as an operator wants them. ValueError when one of them cannot
        be; then all stay as they are."""
        created = 0
        for topic in topics:
            check_topic(topic.topic_name)
            for queues in (topic.read_queue_nums, topic.write_queue_nums):
                if not 0 <= queues <= QUEUES_MAX:
                    raise ValueError(f"{queues} queues: 0 to {QUEUES_MAX} are possible")
            created += topic.topic_name not in self._table
        if created and len(self._table) + created > self._config.topics_max:
            raise ValueError(f"there are {len(self._table)} topics, maxTopicNum allows no more")
        for topic in topics:
            self._put(topic)
        self.save()

    def renew(self) -> None:
        """Make a new version, because something that concerns all topics changed."""
        self._changed_table()

    def delete(self, name: str) -> bool:
        if self._table.pop(name, None) is None:
            return False
        self._changed_table(name)
        self.save()
        return True

    def set_order(self, ordered: dict[str, str]) -> None:
        """Take over from a NameServer which topics are ordered ones."""
        for topic in self._table.values():
            if topic.order != (topic.topic_name in ordered):
                topic.order = topic.topic_name in ordered
                self.touch()

    def _put(self, topic: TopicConfig) -> None:
        self._table[topic.topic_name] = topic
        self._changed_table(topic.topic_name)

    def _changed_table(self, name: str = "") -> None:
        if name and self.news is not None:
            self.news.add(name)
        self.version = self.version.next(self._clock.now_ms())
        self.touch()
        self.on_change()


def group_of(topic: str) -> str | None:
    """The group whose retry or dead-letter topic this is."""
    for prefix in (RETRY_PREFIX, DEAD_LETTER_PREFIX):
        if topic.startswith(prefix):
            return topic[len(prefix) :]
    return None


def reply_topic(cluster: str) -> str:
    return f"{cluster}_REPLY_TOPIC"


def _system_topics(config: BrokerConfig, delay_levels: int) -> list[TopicConfig]:
    """Topics that every broker has; tools find brokers by those named after cluster and broker."""
    shared = PERM_INHERIT | READ_WRITE
    cluster_perm = shared if config.cluster_topic else PERM_INHERIT
    broker_perm = shared if config.broker_topic else PERM_INHERIT
    topics = [
        TopicConfig(SELF_TEST_TOPIC, 1, 1),
        TopicConfig(BENCHMARK_TOPIC, 1024, 1024),
        TopicConfig(config.cluster, perm=cluster_perm),
        TopicConfig(config.name, 1, 1, broker_perm),
        TopicConfig(OFFSET_MOVED_TOPIC, 1, 1),
        TopicConfig(SCHEDULE_TOPIC, delay_levels, delay_levels),
        TopicConfig(reply_topic(config.cluster), 1, 1),
        TopicConfig(HALF_TOPIC, 1, 1),
        TopicConfig(HALF_DONE_TOPIC, 1, 1),
    ]
    if config.auto_create_topics:
        queues = config.default_topic_queues
        topics.append(TopicConfig(TEMPLATE_TOPIC, queues, queues, shared))
    if config.trace_topic:
        topics.append(TopicConfig(config.trace_topic_name, 1, 1))
    if config.timers:
        topics.append(TopicConfig(TIMER_TOPIC, 1, 1))
    if config.raft:
        topics.append(TopicConfig(names.RAFT_TABLES_TOPIC, 1, 1))
    return topics
