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
    IllegalArgument,
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
_HELD_LEAST_S = 0.05
"""A broker that has nothing and says so sooner is one that cannot hold our pull just now."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class FlowLimits:
    """How far one queue may be read ahead of its handlers."""

    messages: int = 1000
    bytes: int = 100 * 1024**2
    span: int = 2000
    """From the first message that is not done to the last one read; 0: any."""

    def __post_init__(self) -> None:
        if self.messages < 1 or self.bytes < 1 or self.span < 0:
            raise IllegalArgument(f"nothing could ever be read within {self}")


Deliver = Callable[["Feed", Window, list[ReceivedMessage]], None]


class Feed:
    def __init__(
        self,
        queue: MessageQueue,
        puller: Puller,
        subscription: Callable[[], SubscriptionData],
        deliver: Deliver,
        *,
        take_over: Callable[["Feed"], Awaitable[None]],
        find_start: Callable[[MessageQueue], Awaitable[int]],
        beat: Callable[[], Awaitable[None]],
        limits: FlowLimits,
        commits: bool,
    ) -> None:
        """`take_over` returns when the queue is ours to read; `beat` tells brokers our
        subscriptions; `commits`: pulls carry the offset along."""
        self.queue = queue
        self.window: Window | None = None
        """None until it is known where to begin."""
        self.committed: int | None = None
        """What was written down last of this window."""
        self.is_dropped = False
        self.is_paused = False
        self.last_pull_ms = 0
        self.max_offset = 0
        self._puller = puller
        self._subscription = subscription
        self._deliver = deliver
        self._take_over = take_over
        self._is_taken = False
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
        self.window = None if offset is None else Window(offset)
        self.committed = None
        self.restart()

    def restart(self) -> None:
        """Ask anew, from where we are: what a broker still holds was asked for before."""
        self._stop_reading()
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
        """From now on nothing more comes, not even by a pull that is under way."""
        if not self.is_paused:
            self.is_paused = True
            self.restart()

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
                # Who says no, or nonsense, will say so again: that is worth a louder word.
                is_lasting = isinstance(error, (BrokerError, ProtocolError))
                level = logging.ERROR if is_lasting else logging.WARNING
                log.log(level, "%r cannot be read now: %s", self, error)
                await asyncio.sleep(self._backoff.next_s())
            except Exception:
                log.exception("%r: reading broke and begins again", self)
                await asyncio.sleep(self._backoff.next_s())

    async def _read(self) -> None:
        if not self._is_taken:
            await self._take_over(self)
            self._is_taken = True
        if self.window is None:
            self.window = Window(await self._find_start(self.queue))
        window = self.window
        await self._room(window)
        asked = _now()
        pulled = await self._puller.pull(
            self.queue,
            window.next_offset,
            self._subscription(),
            # Only with nothing in hand: whatever is done later came by this pull's answer, so the
            # offset in it can never be behind one that was committed meanwhile.
            commit_offset=window.commit_offset if self._commits and not window.count else None,
        )
        self.last_pull_ms = time.time_ns() // 1_000_000
        self._take(window, pulled)
        if pulled.status is PullStatus.NO_NEW and _now() - asked < _HELD_LEAST_S:
            await asyncio.sleep(self._backoff.next_s())

    def _take(self, window: Window, pulled: Pulled) -> None:
        self.max_offset = pulled.max_offset
        if pulled.status is PullStatus.MOVED:
            log.warning(
                "%r: offset %d is outside of what the broker has (%d to %d); reading on at %d",
                self, window.next_offset, pulled.min_offset, pulled.max_offset, pulled.next_offset,
            )  # fmt: skip
            self._move(window, pulled)
            return
        messages = matching(pulled.messages, self._subscription())
        window.add(messages, pulled.next_offset)
        if messages:
            self._deliver(self, window, messages)

    def _move(self, window: Window, pulled: Pulled) -> None:
        if window.next_offset < pulled.min_offset:
            # What lay between is gone for good; what was read before is still to be consumed.
            window.add([], pulled.next_offset)
        else:
            self.window = Window(pulled.next_offset)
            self.committed = None


def _now() -> float:
    return asyncio.get_running_loop().time()
