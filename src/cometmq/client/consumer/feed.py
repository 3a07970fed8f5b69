"""One queue that this member is in charge of: read ahead within bounds, from where the group is.

Reading goes on in a task of its own until the queue is given up. It pauses while too many messages
wait to be consumed. A reset starts a new window: whoever still works on messages of the old one
finishes them there, and nothing of it is committed any more.
"""

import asyncio
import dataclasses
import logging
import time
from collections.abc import Awaitable, Callable

from cometmq.protocol.errors import ProtocolError
from cometmq.protocol.message_queue import MessageQueue
from cometmq.protocol.subscription import SubscriptionData

from ..backoff import Backoff
from ..errors import (
    BrokerError,
    ClientError,
    FilterOutdated,
    FilterUnknown,
    SubscriptionOutdated,
    SubscriptionUnknown,
)
from ..received import ReceivedMessage
from .pulls import Pulled, Puller, PullStatus
from .subscriptions import matching
from .window import Window

log = logging.getLogger(__name__)
_UNHEARD = (SubscriptionUnknown, SubscriptionOutdated, FilterUnknown, FilterOutdated)
_RETRY_FIRST_S = 0.1
_RETRY_LONGEST_S = 3.0


@dataclasses.dataclass(frozen=True, kw_only=True)
class FlowLimits:
    """How far one queue may be read ahead of its handlers."""

    messages: int = 1000
    bytes: int = 100 * 1024**2
    span: int = 2000
    """From the first message that is not done to the last one read; 0: any."""


Deliver = Callable[["Feed", Window, list[ReceivedMessage]], None]


class Feed:
    def __init__(
        self,
        queue: MessageQueue,
        puller: Puller,
        subscription: Callable[[], SubscriptionData],
        deliver: Deliver,
        *,
        find_start: Callable[["Feed"], Awaitable[int]],
        beat: Callable[[], Awaitable[None]],
        limits: FlowLimits,
        commits: bool,
    ) -> None:
        """`beat` tells brokers our subscriptions; `commits`: pulls carry the offset along."""
        self.queue = queue
        self.window: Window | None = None
        """None until it is known where to begin."""
        self.is_dropped = False
        self.is_paused = False
        self.last_pull_ms = 0
        self.max_offset = 0
        self._puller = puller
        self._subscription = subscription
        self._deliver = deliver
        self._find_start = find_start
        self._beat = beat
        self._limits = limits
        self._commits = commits
        self._changed = asyncio.Event()
        self._backoff = Backoff(_RETRY_FIRST_S, _RETRY_LONGEST_S)
        self._task: asyncio.Task[None] | None = None

    def __repr__(self) -> str:
        queue = self.queue
        return f"<Feed {queue.topic} {queue.broker_name} {queue.queue_id}>"

    # -- life ------------------------------------------------------------------------------------

    def start(self) -> None:
        self._task = asyncio.create_task(self._run())

    def drop(self) -> None:
        """Read no more. What is being consumed may still be finished."""
        self.is_dropped = True
        self._stop_reading()

    def reset(self, offset: int | None) -> None:
        """Go on at another offset, or where the group is; what was read ahead is forgotten."""
        self._stop_reading()
        self.window = None if offset is None else Window(offset)
        if not self.is_dropped:
            self.start()

    def _stop_reading(self) -> None:
        if self._task is not None:
            self._task.cancel()
            self._task = None

    @property
    def commit_offset(self) -> int | None:
        return None if self.window is None else self.window.commit_offset

    # -- bounds ----------------------------------------------------------------------------------

    def finish(self, window: Window, messages: list[ReceivedMessage]) -> None:
        """Those messages are done."""
        window.finish(messages)
        if not self._changed.is_set():
            self._changed.set()

    def pause(self) -> None:
        self.is_paused = True

    def resume(self) -> None:
        self.is_paused = False
        self._changed.set()

    def _has_room(self, window: Window) -> bool:
        limits = self._limits
        return (
            not self.is_paused
            and window.count < limits.messages
            and window.bytes < limits.bytes
            and (not limits.span or window.span < limits.span)
        )

    async def _room(self, window: Window) -> None:
        while not self._has_room(window):
            self._changed.clear()
            await self._changed.wait()

    # -- reading ---------------------------------------------------------------------------------

    async def _run(self) -> None:
        while not self.is_dropped:
            try:
                await self._read()
                self._backoff.reset()
            except _UNHEARD as error:
                log.info("%r: %s", self, error)
                await self._beat()
                await asyncio.sleep(self._backoff.next_s())
            except (ClientError, ProtocolError) as error:
                # A broker that says no will say so again: that is worth a louder word.
                level = logging.ERROR if isinstance(error, BrokerError) else logging.WARNING
                log.log(level, "%r cannot be read now: %s", self, error)
                await asyncio.sleep(self._backoff.next_s())

    async def _read(self) -> None:
        if self.window is None:
            start = await self._find_start(self)
            self.window = Window(start)
        window = self.window
        await self._room(window)
        pulled = await self._puller.pull(
            self.queue,
            window.next_offset,
            self._subscription(),
            commit_offset=window.commit_offset if self._commits else None,
        )
        self.last_pull_ms = time.time_ns() // 1_000_000
        self._take(window, pulled)

    def _take(self, window: Window, pulled: Pulled) -> None:
        self.max_offset = pulled.max_offset
        if pulled.status is PullStatus.MOVED:
            log.warning(
                "%r: offset %d is outside of what the broker has (%d to %d); reading on at %d",
                self, window.next_offset, pulled.min_offset, pulled.max_offset, pulled.next_offset,
            )  # fmt: skip
            self.window = Window(pulled.next_offset)
            return
        messages = matching(pulled.messages, self._subscription())
        window.add(messages, pulled.next_offset)
        if messages:
            self._deliver(self, window, messages)
