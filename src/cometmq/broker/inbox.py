"""The one way of messages into the store, whoever brings them: clients, retries, due delays."""

import asyncio
from collections.abc import Callable, Sequence

from cometmq.protocol.codes import ResponseCode
from cometmq.protocol.errors import IllegalMessage
from cometmq.protocol.message import Appended, Message
from cometmq.protocol.properties import PROPERTIES_BYTES_MAX
from cometmq.store.config import FlushMode
from cometmq.store.errors import (
    AppendRefused,
    MessageTooLarge,
    StoreClosed,
    WaitersFull,
    WaitTimeout,
)
from cometmq.transport.connection import Refusal

from .context import Context
from .delayed import delayed
from .stats import TOPIC_PUT_NUMS, TOPIC_PUT_SIZE
from .timers.timed import ROOM_BYTES, asked_time, takes_back, waiting, wants_timer

Settled = Callable[[ResponseCode, str | None], None]
_CLOSE_POLL_S = 0.005
WAITS = b"DEL"
"""Part of the name of every property that lets a message wait: the others need no closer look."""


class Inbox:
    def __init__(self, context: Context) -> None:
        self._context = context
        self._store = context.store
        self._turns = context.turns
        self._stats = context.stats
        self._levels = len(context.store.config.delays_ms())
        self._sync = context.store.config.flush is FlushMode.SYNC
        self._closed = False
        self.waiting = 0
        """Messages or batches that wait for the end of their turn, or for the disk."""

    def put(
        self, messages: list[Message], settled: Settled, *, may_wait: bool = True
    ) -> list[Appended]:
        """Append messages, those with a delay to where they wait; `settled` is told when they
        may be acknowledged. Refusal if not. `may_wait`: False if none has a delay."""
        records = [self._waiting(m) for m in messages] if may_wait else messages
        return self._append(messages, records, settled)

    def put_due(self, message: Message, settled: Settled) -> list[Appended]:
        """The same for a message whose delay is over."""
        return self._append([message], [message], settled)

    def put_decision(self, message: Message | None, record: Message, settled: Settled) -> None:
        """The end of a transaction: its message, if it is committed, and the record of it, one
        behind the other."""
        if message is None:
            self._append([record], [record], settled)
        else:
            self._append([message], [self._waiting(message), record], settled)

    def timed(self, message: Message) -> Message:
        """The form in which a message waits that asks for a time of its own; others, and those
        whose time has come already, as they are. Refusal if it cannot wait for that."""
        if not wants_timer(message):
            return message
        config, now_ms = self._context.config, self._context.clock.now_ms()
        if not config.timers:
            raise Refusal(
                ResponseCode.SYSTEM_ERROR,
                "accurate timer message is not enabled, timerWheelEnable is false",
            )
        due_ms = asked_time(message.properties, now_ms)
        delay_max_ms = config.timer_delay_max_s * 1000
        late = due_ms is not None and due_ms <= now_ms
        if due_ms is None or due_ms - now_ms > delay_max_ms or (late and takes_back(message)):
            raise Refusal(
                ResponseCode.MESSAGE_ILLEGAL,
                "timer message illegal, the delay time should not be bigger than the max delay "
                f"{delay_max_ms}ms; or if set del msg, the delay time should be bigger than the "
                "current time",
            )
        if late:
            return message
        waits = waiting(message, due_ms)
        if len(waits.properties) + ROOM_BYTES > PROPERTIES_BYTES_MAX:
            raise illegal(f"its properties leave no room for the {ROOM_BYTES} bytes of a timer")
        return waits

    def _waiting(self, message: Message) -> Message:
        if WAITS not in message.properties:
            return message
        return delayed(self.timed(message), self._levels)

    def _append(
        self, messages: Sequence[Message], records: list[Message], settled: Settled
    ) -> list[Appended]:
        if self._closed:
            raise _refusal(StoreClosed("the broker is stopping"))
        if self._sync and self.waiting >= self._context.config.sends_waiting_max:
            raise Refusal(
                ResponseCode.SYSTEM_BUSY,
                f"[REJECTREQUEST]{self.waiting} sends wait for the disk, start flow control",
            )
        try:
            placed = self._store.append_all(records)
        except (AppendRefused, IllegalMessage, StoreClosed) as error:
            self._stats.put_failed.total += len(messages)
            # Those of a batch before the one that was refused are in the log, and are read.
            self._turns.appended(lambda _: None)
            raise _refusal(error) from None
        self._count(messages, placed[: len(messages)])
        self.waiting += 1

        def done(error: BaseException | None) -> None:
            self.waiting -= 1
            settled(*_outcome(error))

        self._turns.appended(done)
        return placed

    async def close(self) -> None:
        """Take nothing more, and let all who wait have their answers. Each wait ends by itself
        after the time that a sync may take."""
        self._closed = True
        while self.waiting:
            await asyncio.sleep(_CLOSE_POLL_S)

    def _count(self, messages: Sequence[Message], placed: list[Appended]) -> None:
        stats, size = self._stats, sum([appended.size for appended in placed])
        stats.put.total += len(placed)
        stats.put_bytes.total += size
        topic = messages[0].topic
        stats.meter(TOPIC_PUT_NUMS, topic).total += len(placed)
        stats.meter(TOPIC_PUT_SIZE, topic).total += size


def illegal(reason: str) -> Refusal:
    return Refusal(
        ResponseCode.MESSAGE_ILLEGAL,
        f"the message is illegal, maybe msg body or properties length not matched: {reason}",
    )


def _refusal(error: Exception) -> Refusal:
    if isinstance(error, MessageTooLarge | IllegalMessage):
        return illegal(str(error))
    return Refusal(ResponseCode.SERVICE_NOT_AVAILABLE, f"service not available now: {error}")


def _outcome(error: BaseException | None) -> tuple[ResponseCode, str | None]:
    if error is None:
        return ResponseCode.SUCCESS, None
    if isinstance(error, WaitTimeout):
        return ResponseCode.FLUSH_DISK_TIMEOUT, str(error)
    if isinstance(error, WaitersFull):
        return ResponseCode.SYSTEM_BUSY, f"[PC_SYNCHRONIZED]broker busy: {error}"
    return ResponseCode.SERVICE_NOT_AVAILABLE, f"service not available now: {error}"
