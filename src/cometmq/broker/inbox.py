"""The one way of messages into the store, whoever brings them: clients, retries, due delays."""

from collections.abc import Callable, Sequence

from cometmq.protocol.codes import ResponseCode
from cometmq.protocol.errors import IllegalMessage
from cometmq.protocol.message import Appended, Message
from cometmq.store.config import FlushMode
from cometmq.store.errors import (
    AppendRefused,
    MessageTooLarge,
    StoreClosed,
    WaitersFull,
    WaitTimeout,
)
from cometmq.store.message_store import MessageStore
from cometmq.store.turns import LoopTurns
from cometmq.transport.connection import Refusal

from .delayed import delayed
from .stats import TOPIC_PUT_NUMS, TOPIC_PUT_SIZE, Stats

Settled = Callable[[ResponseCode, str | None], None]


class Inbox:
    def __init__(self, store: MessageStore, turns: LoopTurns, stats: Stats) -> None:
        self._store = store
        self._turns = turns
        self._stats = stats
        self._levels = len(store.config.delays_ms())
        self._waits = store.config.flush is FlushMode.SYNC
        self.waiting = 0
        """Messages or batches that wait for the disk."""

    def put(self, messages: Sequence[Message], settled: Settled) -> list[Appended]:
        """Append messages; `settled` is told when they may be acknowledged. Refusal if not."""
        levels = self._levels
        try:
            placed = self._store.append_all([delayed(message, levels) for message in messages])
        except (AppendRefused, IllegalMessage, StoreClosed) as error:
            self._stats.put_failed.total += len(messages)
            raise _refusal(error) from None
        self._count(messages, placed)
        self.waiting += self._waits

        def done(error: BaseException | None) -> None:
            self.waiting -= self._waits
            settled(*_outcome(error))

        self._turns.appended(done)
        return placed

    def _count(self, messages: Sequence[Message], placed: list[Appended]) -> None:
        stats, size = self._stats, sum(appended.size for appended in placed)
        stats.put.total += len(placed)
        stats.put_bytes.total += size
        topic = messages[0].topic
        stats.meter(TOPIC_PUT_NUMS, topic).total += len(placed)
        stats.meter(TOPIC_PUT_SIZE, topic).total += size


def _refusal(error: Exception) -> Refusal:
    if isinstance(error, MessageTooLarge | IllegalMessage):
        return Refusal(ResponseCode.MESSAGE_ILLEGAL, f"the message is illegal: {error}")
    return Refusal(ResponseCode.SERVICE_NOT_AVAILABLE, f"service not available now: {error}")


def _outcome(error: BaseException | None) -> tuple[ResponseCode, str | None]:
    if error is None:
        return ResponseCode.SUCCESS, None
    if isinstance(error, WaitTimeout):
        return ResponseCode.FLUSH_DISK_TIMEOUT, str(error)
    if isinstance(error, WaitersFull):
        return ResponseCode.SYSTEM_BUSY, f"[PC_SYNCHRONIZED]broker busy: {error}"
    return ResponseCode.SERVICE_NOT_AVAILABLE, f"service not available now: {error}"
