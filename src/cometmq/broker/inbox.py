"""The one way of messages into the store, whoever brings them: clients, retries, due delays."""

import asyncio
from collections.abc import Callable, Sequence

from cometmq.protocol.codes import ResponseCode
from cometmq.protocol.errors import IllegalMessage
from cometmq.protocol.express import Rules, Taken, as_failures
from cometmq.protocol.message import Appended, Message
from cometmq.protocol.properties import PROPERTIES_BYTES_MAX, property_value
from cometmq.replication.acks import TooFewReplicas
from cometmq.store.config import FlushMode
from cometmq.store.errors import (
    AppendRefused,
    DiskFull,
    MessageTooLarge,
    NotConfirmed,
    ReplicasMissing,
    ReplicaTimeout,
    StoreClosed,
    WaitersFull,
    WaitTimeout,
)
from cometmq.transport.connection import Refusal

from .config import BrokerRole
from .context import Context
from .delayed import delayed
from .timers.timed import ROOM_BYTES, asked_time, takes_back, waiting, wants_timer

Settled = Callable[[ResponseCode, str | None], None]
_CLOSE_POLL_S = 0.005
_MANY = 2**31
WAITS = b"DEL"
"""Part of the name of every property that lets a message wait: the others need no closer look."""


class Inbox:
    def __init__(self, context: Context) -> None:
        self._context = context
        self._store = context.store
        self._turns = context.turns
        self._waiting_pulls = context.waiting_pulls
        self._stats = context.stats
        self._levels = len(context.store.config.delays_ms())
        self._is_slave = context.config.is_slave
        self._quorum = context.quorum
        is_sync_master = context.config.role is BrokerRole.SYNC_MASTER
        self._waits = (
            context.store.config.flush is FlushMode.SYNC or is_sync_master or context.config.raft
        )
        self._needs_replicas = is_sync_master and context.config.acting_master
        self._closed = False
        self.waiting = 0
        """Messages or batches that wait for the end of their turn, the disk or slaves."""

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

    def put_usual(
        self,
        data: bytes,
        rules: Rules,
        born_host: bytes,
        answer: Callable[[bytes], None],
        note: Callable[[Taken, int], None] | None = None,
    ) -> int:
        """The same for the sends that some bytes begin with, as long as there is nothing unusual
        about them; where the first of the others begins. `answer` gets the frames that they are
        answered with; `note` is told afterwards what was taken, and with which code."""
        room = self._room()
        if self._why_closed() is not None or self._needs_replicas or room <= 0:
            return 0
        taken = self._store.append_sends(data, rules, born_host, room)
        if taken is None or not taken.end:
            return 0
        awaited = False
        for topic, count, size in taken.puts:
            self._count(topic, count, size)
            awaited = awaited or self._waiting_pulls.awaits(topic)
        requests = taken.requests
        if not self._turns.waits:
            self._turns.acknowledged(requests, awaited=awaited)
            answer(taken.answers)
            if note is not None:
                note(taken, ResponseCode.SUCCESS)
            return taken.end
        self.waiting += requests

        def done(error: BaseException | None) -> None:
            self.waiting -= requests
            code, remark = _outcome(error)
            answer(taken.answers if error is None else as_failures(taken.answers, code, remark))
            if note is not None:
                note(taken, code)

        self._turns.appended(done, requests)
        return taken.end

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
        why_closed = self._why_closed()
        if why_closed is not None:
            raise _refusal(StoreClosed(why_closed))
        if self._room() <= 0:
            raise Refusal(
                ResponseCode.SYSTEM_BUSY,
                f"[REJECTREQUEST]{self.waiting} sends wait for the disk, start flow control",
            )
        if self._needs_replicas:
            self._require_replicas(records)
        try:
            placed = self._store.append_all(records)
        except (AppendRefused, IllegalMessage, StoreClosed) as error:
            self._stats.put_failed.total += len(messages)
            if self._quorum is not None and isinstance(error, DiskFull):
                self._quorum.no_room()
            # Those of a batch before the one that was refused are in the log, and are read.
            self._turns.appended(lambda _: None)
            raise _refusal(error) from None
        count = len(messages)
        # What waits is counted where it waits, and in its own topic when it gets there.
        self._count(records[0].topic, count, sum([one.size for one in placed[:count]]))
        self.waiting += 1

        def done(error: BaseException | None) -> None:
            self.waiting -= 1
            settled(*_outcome(error))

        self._turns.appended(done)
        return placed

    def _why_closed(self) -> str | None:
        """Why nothing at all is taken, if it is so."""
        if self._closed:
            return "the broker is stopping"
        if self._quorum is not None:
            return self._quorum.why_closed()
        return "the broker is a slave, write to its master" if self._is_slave else None

    def _room(self) -> int:
        """How many more may wait for the disk or slaves."""
        return self._context.config.sends_waiting_max - self.waiting if self._waits else _MANY

    def _require_replicas(self, records: list[Message]) -> None:
        slaves = self._context.slaves
        if slaves is None or all(
            property_value(r.properties, b"WAIT") == b"false" for r in records
        ):
            return
        try:
            slaves.require()
        except TooFewReplicas as error:
            raise Refusal(
                ResponseCode.SYSTEM_ERROR, f"in-sync replicas not enough: {error}"
            ) from None

    async def close(self) -> None:
        """Take nothing more, and let all who wait have their answers. Each wait ends by itself
        after the time that a sync may take."""
        self._closed = True
        while self.waiting:
            await asyncio.sleep(_CLOSE_POLL_S)
        self._turns.catch_up()

    def _count(self, topic: str, count: int, size: int) -> None:
        stats = self._stats
        stats.put.total += count
        stats.put_bytes.total += size
        (stats.topics.get(topic) or stats.topic(topic)).add(count, size)


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
    if isinstance(error, ReplicasMissing):
        return ResponseCode.SLAVE_NOT_AVAILABLE, str(error)
    if isinstance(error, ReplicaTimeout):
        return ResponseCode.FLUSH_SLAVE_TIMEOUT, str(error)
    if isinstance(error, WaitTimeout) and not isinstance(error, NotConfirmed):
        return ResponseCode.FLUSH_DISK_TIMEOUT, str(error)
    if isinstance(error, WaitersFull):
        return ResponseCode.SYSTEM_BUSY, f"[PC_SYNCHRONIZED]broker busy: {error}"
    return ResponseCode.SERVICE_NOT_AVAILABLE, f"service not available now: {error}"
