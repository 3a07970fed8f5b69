"""The user's function: called for one message or a batch, on the loop or off it.

A coroutine function runs on the event loop and must not block it: nothing of the client goes on
meanwhile, and a member that brokers have not heard of for two minutes loses its queues to others.
A plain function runs in a thread and may block for as long as it likes. Nothing but None and
`Later` is an outcome; anything else, and any exception, counts as a failure and is logged.
"""

import asyncio
import inspect
import logging
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec

from ..errors import IllegalArgument
from ..received import ReceivedMessage
from .threads import Threads

log = logging.getLogger(__name__)


class Later(msgspec.Struct, frozen=True):
    """Not consumed: the message comes again later.

    `delay_level` 0 lets the broker decide (longer each time), -1 sends it to the dead letters at
    once. Of a batch, the first `done` messages count as consumed.
    """

    delay_level: int = 0
    done: int = 0

    def __post_init__(self) -> None:
        if self.done < 0:
            raise ValueError(f"Later(done={self.done}): the first so many of a batch are consumed")


Outcome = Later | None
"""None: consumed."""
Handler = Callable[[ReceivedMessage], Awaitable[Outcome]] | Callable[[ReceivedMessage], Outcome]
BatchHandler = (
    Callable[[list[ReceivedMessage]], Awaitable[Outcome]]
    | Callable[[list[ReceivedMessage]], Outcome]
)
FAILED = Later()


class Handling:
    def __init__(
        self, handler: Handler | None, batch_handler: BatchHandler | None, threads: int
    ) -> None:
        if (handler is None) == (batch_handler is None):
            raise IllegalArgument("give a handler or a batch_handler, one of the two")
        self._takes_one = handler is not None
        self._function: Callable[[Any], Any] = handler or batch_handler  # type: ignore[assignment]
        self._is_async = _is_async(self._function)
        self._thread_count = threads
        self._threads: Threads | None = None

    @property
    def takes_one(self) -> bool:
        return self._takes_one

    @property
    def is_cancellable(self) -> bool:
        """A plain function cannot be made to end."""
        return self._is_async

    def start(self) -> None:
        if not self._is_async:
            self._threads = Threads(self._function, self._thread_count)

    def stop(self) -> None:
        if self._threads is not None:
            self._threads.stop()

    async def handle(self, messages: list[ReceivedMessage]) -> Outcome:
        """What the user's function makes of them. Never raises, but for being cancelled."""
        argument = messages[0] if self._takes_one else messages
        try:
            call = self._function if self._threads is None else self._threads.call
            outcome = await call(argument)
        except asyncio.CancelledError:
            if _is_being_cancelled():
                raise
            # Something that the handler waited for was cancelled: no matter of ours.
            log.exception("the handler failed at %s", _described(messages))
            return FAILED
        except Exception:
            log.exception("the handler failed at %s", _described(messages))
            return FAILED
        if outcome is None or isinstance(outcome, Later):
            return outcome
        log.error(
            "the handler returned %r for %s: None says that it was consumed, Later() that it was "
            "not; it will come again",
            outcome,
            _described(messages),
        )
        return FAILED


def _is_being_cancelled() -> bool:
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


def _is_async(function: Callable[[Any], Any]) -> bool:
    """Also for objects whose `__call__` is a coroutine function."""
    call = getattr(function, "__call__", None)  # noqa: B004 - the method itself is looked at
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(call)


def _described(messages: list[ReceivedMessage]) -> str:
    first = messages[0]
    more = f" and {len(messages) - 1} more" if len(messages) > 1 else ""
    queue = first.queue
    return (
        f"message {first.message_id} of {first.topic} "
        f"({queue.broker_name}, queue {queue.queue_id}, offset {first.queue_offset}){more}"
    )
