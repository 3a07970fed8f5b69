"""The consumer groups of a broker and what each is allowed."""

import logging
from collections.abc import Callable, Iterator, Mapping

from cometmq.clock import Clock
from cometmq.protocol.data_version import DataVersion
from cometmq.protocol.group_config import GroupConfig, GroupConfigs
from cometmq.protocol.names import check_topic
from cometmq.protocol.topic_config import PERM_READ
from cometmq.store.config_file import ConfigFile

from .config import BrokerConfig
from .persistent import Persistent

log = logging.getLogger(__name__)
GROUP_CHARS_MAX = 255
SYSTEM_PREFIX = "CID_RMQ_SYS_"
GROUPS_MAX = 100_000
_SYSTEM = (
    "TOOLS_CONSUMER", "FILTERSRV_CONSUMER", "SELF_TEST_C_GROUP", "CID_ONS-HTTP-PROXY",
    "CID_ONSAPI_PULL", "CID_ONSAPI_PERMISSION", "CID_ONSAPI_OWNER", "CID_RMQ_SYS_TRANS",
)  # fmt: skip


class Groups(Persistent):
    def __init__(self, config: BrokerConfig, file: ConfigFile | None, clock: Clock) -> None:
        super().__init__(file)
        self._config = config
        self._clock = clock
        self.on_change: Callable[[], None] = lambda: None
        """Called when a group came, went or changed."""
        self.news: set[str] | None = None
        """Groups that changed, where somebody collects them."""
        self.version = DataVersion(0, clock.now_ms(), 0)
        self._table: dict[str, GroupConfig] = {}
        self._forbidden: dict[str, dict[str, int]] = {}
        saved: GroupConfigs | None = self.load_as(GroupConfigs)
        if saved is not None:
            self._table = dict(saved.subscription_group_table)
            self._forbidden = saved.forbidden_table
            self.version = saved.data_version
        for name in _SYSTEM:
            if name not in self._table:
                self._table[name] = GroupConfig(name)
                self.touch()
        self._expect_archive()

    def content(self) -> GroupConfigs:
        return GroupConfigs(self._table, self._forbidden, self.version)

    def copy(self, told: GroupConfigs) -> None:
        """Take over a master's groups and their version."""
        system = {name: self._table[name] for name in _SYSTEM}
        table = {**system, **told.subscription_group_table}
        if self.version == told.data_version and self._table == table:
            return
        self._table, self._forbidden = table, told.forbidden_table
        self.version = told.data_version
        self.touch()
        self.save()

    def take(
        self,
        changes: Mapping[str, GroupConfig | None],
        forbidden: dict[str, dict[str, int]] | None,
        version: DataVersion,
    ) -> None:
        """Take over what changed at the leader of a group of brokers; None: it is deleted."""
        for name, group in changes.items():
            if group is None:
                self._table.pop(name, None)
            else:
                self._table[name] = group
        self._forbidden = self._forbidden if forbidden is None else forbidden
        self.version = version
        self.touch()

    def take_news(self) -> set[str]:
        news, self.news = self.news or set(), set()
        return news

    def bring_back(self, news: set[str]) -> None:
        """They could not be told yet."""
        self.news = news | (self.news or set())

    def reconfigure(self, config: BrokerConfig) -> None:
        self._config = config
        self._expect_archive()

    def __iter__(self) -> Iterator[GroupConfig]:
        return iter(list(self._table.values()))

    def get(self, name: str) -> GroupConfig | None:
        return self._table.get(name)

    def find(self, name: str) -> GroupConfig | None:
        """The group, made on the spot where that is allowed; None if it is not."""
        known = self._table.get(name)
        if known is not None:
            return known
        allowed = self._config.auto_create_groups or is_system_group(name)
        if not allowed or len(self._table) >= GROUPS_MAX:
            return None
        try:
            check_group(name)
        except ValueError:
            return None
        log.info("new consumer group %s", name)
        self._put(GroupConfig(name))
        return self._table[name]

    def update(self, *groups: GroupConfig) -> None:
        """Create or change groups as an operator wants them. ValueError when one of them cannot
        be; then all stay as they are."""
        for group in groups:
            check_group(group.group_name)
        for group in groups:
            self._put(group)
        self.save()

    def may_read(self, group: str, topic: str) -> bool:
        """Whether an operator lets a group read a topic."""
        if not self._forbidden:
            return True
        return not self._forbidden.get(group, {}).get(topic, 0) & PERM_READ

    def set_readable(self, group: str, topic: str, *, readable: bool) -> None:
        topics = self._forbidden.setdefault(group, {})
        topics[topic] = topics.get(topic, 0) & ~PERM_READ | (0 if readable else PERM_READ)
        if not topics[topic]:
            del topics[topic]
        if not topics:
            del self._forbidden[group]
        self._changed_table(group)
        self.save()

    def delete(self, name: str) -> bool:
        if self._table.pop(name, None) is None:
            return False
        self._forbidden.pop(name, None)
        self._expect_archive()
        self._changed_table(name)
        self.save()
        return True

    def _expect_archive(self) -> None:
        """As long as files wait for the archive, its group is there: its commits must get in."""
        name = self._config.archive_group
        if self._config.archive_required and name not in self._table:
            self._put(GroupConfig(name))

    def _put(self, group: GroupConfig) -> None:
        self._table[group.group_name] = group
        self._changed_table(group.group_name)

    def _changed_table(self, name: str) -> None:
        if self.news is not None:
            self.news.add(name)
        self.version = self.version.next(self._clock.now_ms())
        self.touch()
        self.on_change()


def check_group(name: str) -> str:
    """The name itself, or IllegalMessage with the rule that it breaks."""
    if not name:
        raise ValueError("a group needs a name")
    if len(name) > GROUP_CHARS_MAX:
        raise ValueError(f"group {name[:40]!r}… is longer than {GROUP_CHARS_MAX} characters")
    # Its retry topic must be a possible name, too.
    check_topic(f"%RETRY%{name}")
    return name


def is_system_group(name: str) -> bool:
    return name in _SYSTEM or name.startswith(SYSTEM_PREFIX)
