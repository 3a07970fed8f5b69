"""RocketMQ's rules for names. Topic names become directories, so nothing passes unchecked."""

import re

from .errors import IllegalMessage

_ALLOWED = re.compile(r"[%|a-zA-Z0-9_-]+")
TOPIC_CHARS_MAX = 127
SPECIAL_TOPIC_CHARS_MAX = 255
RETRY_PREFIX = "%RETRY%"
DEAD_LETTER_PREFIX = "%DLQ%"
TOOLS_GROUP = "TOOLS_CONSUMER"
"""By whose name those pull who are members of no group."""
SYSTEM_PREFIX = "rmq_sys_"
"""Of topics that brokers keep for themselves."""
RAFT_TABLES_TOPIC = SYSTEM_PREFIX + "raft_tables"
"""Changes of topics, groups and offsets on their way through a Raft group's log."""
HALF_TOPIC = "RMQ_SYS_TRANS_HALF_TOPIC"
"""Where messages wait for the end of their transaction."""
HALF_DONE_TOPIC = "RMQ_SYS_TRANS_OP_HALF_TOPIC"
"""Has a record for each that waits no more."""


def check_topic(name: str) -> str:
    """The name itself, or IllegalMessage with the rule that it breaks."""
    special = name.startswith((RETRY_PREFIX, DEAD_LETTER_PREFIX))
    limit = SPECIAL_TOPIC_CHARS_MAX if special else TOPIC_CHARS_MAX
    if not _ALLOWED.fullmatch(name):
        raise IllegalMessage(f"topic {name!r}: only letters, digits, and % | - _ are allowed")
    if len(name) > limit:
        raise IllegalMessage(
            f"topic {name[:40]!r}… has {len(name)} characters, {limit} are allowed"
        )
    return name
