"""Waiting for brokers that are away for a moment, as one is while it is started anew.

A task or a query that fails is expensive; half a minute of silence is not.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

from cometmq.client.backoff import Backoff
from cometmq.client.errors import (
    AnswerTimedOut,
    BrokerBusy,
    ConnectionLost,
    FlowControlled,
    GoingAway,
    NoRoute,
    Unreachable,
)

from ..errors import ClusterAway

log = logging.getLogger(__name__)
PATIENCE_S: Final = 60.0
"""RocketMQ's broker takes ten seconds and more to start."""
AWAY: Final = (
    AnswerTimedOut, BrokerBusy, ConnectionLost, FlowControlled, GoingAway, NoRoute, Unreachable,
)  # fmt: skip

T = TypeVar("T")


async def patiently(
    work: Callable[[], Awaitable[T]],
    what: str,
    away: tuple[type[Exception], ...] = AWAY,
    patience_s: float | None = None,
) -> T:
    """What the work gives, tried again while it fails with one of `away`."""
    patience_s = PATIENCE_S if patience_s is None else patience_s
    now = asyncio.get_running_loop().time
    deadline, backoff = now() + patience_s, Backoff(longest_s=2.0)
    while True:
        try:
            return await work()
        except away as error:
            pause_s = backoff.next_s()
            if now() + pause_s > deadline:
                raise ClusterAway(f"{what}: tried for {patience_s:g} s: {error}") from error
            log.warning("%s: tried again after %s", what, error)
            await asyncio.sleep(pause_s)
