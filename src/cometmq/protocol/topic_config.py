"""A topic as brokers keep it and tell it to NameServers."""

import msgspec

from .data_version import DataVersion
from .numbers import Int32

PERM_INHERIT, PERM_WRITE, PERM_READ = 1, 2, 4
PERM_MASK = PERM_INHERIT | PERM_WRITE | PERM_READ
DEFAULT_QUEUES = 16
"""Of a topic whose numbers of queues nobody gave."""
QUEUES_MAX = 65_536


class TopicConfig(msgspec.Struct, gc=False, rename="camel"):
    topic_name: str
    read_queue_nums: Int32 = DEFAULT_QUEUES
    write_queue_nums: Int32 = DEFAULT_QUEUES
    perm: Int32 = PERM_READ | PERM_WRITE
    topic_filter_type: str = "SINGLE_TAG"
    topic_sys_flag: Int32 = 0
    order: bool = False
    attributes: dict[str, str] = {}

    @property
    def is_readable(self) -> bool:
        return self.perm & PERM_READ != 0

    @property
    def is_writable(self) -> bool:
        return self.perm & PERM_WRITE != 0


class TopicConfigs(msgspec.Struct, rename="camel"):
    """A table of topics with its version: `topics.json`, and what a broker registers."""

    topic_config_table: dict[str, TopicConfig] = {}
    data_version: DataVersion = DataVersion()
