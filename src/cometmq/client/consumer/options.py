"""What consumers may be told, with its defaults: RocketMQ's where it has the same option."""

import dataclasses
from typing import Final, TypedDict

from ..errors import IllegalArgument
from .feed import FlowLimits
from .pulls import PULL_MESSAGES

_FLOW: Final = FlowLimits()
_FLOW_OF_PULLS: Final = FlowLimits(span=0)
"""Whoever takes messages when it likes takes them in order: how far they span says nothing."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class PushOptions:
    workers: int = 20
    """Handlers at work at the same time, and threads when they are plain functions."""
    batch_size: int = 32
    """The most messages that a batch handler gets at once."""
    max_reconsume_times: int = -1
    """Failures after which a message goes to the dead letters. -1: as the group is configured
    (16), and without end when consumption is orderly."""
    consume_timeout_s: float = 15 * 60.0
    """A concurrent handler that takes longer counts as failed."""
    suspend_s: float = 1.0
    """Orderly: how long a queue waits after a failure."""
    pull_messages: int = PULL_MESSAGES
    flow: FlowLimits = _FLOW
    commit_interval_s: float = 5.0
    stop_timeout_s: float = 30.0
    """How long handlers that have begun may take to end when the consumer stops."""

    def __post_init__(self) -> None:
        if min(self.workers, self.batch_size, self.pull_messages) < 1:
            raise IllegalArgument("workers, batch_size and pull_messages are at least 1")
        if self.consume_timeout_s <= 0 or self.commit_interval_s <= 0:
            raise IllegalArgument("consume_timeout_s and commit_interval_s are more than 0")
        if self.suspend_s < 0 or self.stop_timeout_s < 0:
            raise IllegalArgument("suspend_s and stop_timeout_s are not negative")


class PushKeywords(TypedDict, total=False):
    """The same as keyword arguments."""

    workers: int
    batch_size: int
    max_reconsume_times: int
    consume_timeout_s: float
    suspend_s: float
    pull_messages: int
    flow: FlowLimits
    commit_interval_s: float
    stop_timeout_s: float


@dataclasses.dataclass(frozen=True, kw_only=True)
class PullConsumerOptions:
    auto_commit: bool = True
    """Commit what was consumed every `commit_interval_s` and at the end; else by `commit()`."""
    commit_interval_s: float = 5.0
    pull_messages: int = PULL_MESSAGES
    flow: FlowLimits = _FLOW_OF_PULLS

    def __post_init__(self) -> None:
        if self.commit_interval_s <= 0:
            raise IllegalArgument("commit_interval_s is more than 0; auto_commit=False ends it")
        if self.pull_messages < 1:
            raise IllegalArgument("pull_messages is at least 1")


class PullKeywords(TypedDict, total=False):
    """The same as keyword arguments."""

    auto_commit: bool
    commit_interval_s: float
    pull_messages: int
    flow: FlowLimits
