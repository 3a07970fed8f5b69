"""Transactions: half messages in, decisions of their producers, and questions when none comes.

A commit writes the message and the record of the decision one behind the other; whoever comes
later, or from another group, or a second time, is refused. A half message that stays undecided is
asked about at any living producer of its group, and after too many questions it is put aside.
"""

import asyncio
import logging
from collections import Counter

from cometmq.protocol.codes import RequestCode, ResponseCode
from cometmq.protocol.command import Command, Request, Response
from cometmq.protocol.flags import TRANSACTION_COMMIT, TRANSACTION_ROLLBACK
from cometmq.protocol.headers import EndTransactionFields
from cometmq.protocol.host import pack_host
from cometmq.protocol.hot import encode_record
from cometmq.protocol.message import Appended, Message, StoredMessage
from cometmq.protocol.message_id import offset_id
from cometmq.protocol.properties import UNIQUE_KEY, property_value
from cometmq.store.config_file import ConfigFile
from cometmq.transport.connection import Connection, Handlers, Refusal

from ..context import Context
from ..delayed import REAL_TOPIC
from ..inbox import Inbox, Settled
from ..stats import COMMITTED_NUMS, ROLLED_BACK_NUMS
from ..topics import CHECK_EXCEEDED_TOPIC, HALF_TOPIC
from .half import IMMUNITY_S, PRODUCER_GROUP, committed, done, given_up, half_of, shown_to_producer
from .open_halves import OPEN_MAX, OpenHalves, immunity_ms

log = logging.getLogger(__name__)
LOOK_INTERVAL_S = 0.5
QUESTIONS_PER_LOOK = 1000
RECORD_SLACK_BYTES = 256
"""What a record has beside body, topic and properties."""


class Transactions:
    def __init__(self, context: Context, inbox: Inbox, file: ConfigFile | None) -> None:
        self._context = context
        self._inbox = inbox
        self._store_host = pack_host(*context.address)
        self.halves = OpenHalves(context.store, context.offsets, file)
        self._turn = 0
        self._unheard: Counter[str] = Counter()
        """Questions of one look that nobody heard, by group."""
        self._timer: asyncio.TimerHandle | None = None

    def handlers(self) -> Handlers:
        return {RequestCode.END_TRANSACTION: self.end}

    # -- life ------------------------------------------------------------------------------------

    def start(self) -> None:
        unrecorded = self.halves.recover(self._context.config.transaction_timeout_ms)
        for offset in unrecorded:
            log.warning("half message %d was committed; its record is made up for", offset)
            self._record(offset, None)
        if len(self.halves):
            log.info("%d undecided half messages", len(self.halves))
        self._plan()

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def save(self) -> None:
        self.halves.save()

    # -- half messages ---------------------------------------------------------------------------

    def prepared(self, message: Message) -> Message:
        """A half message as it is stored; told `stored` when it is."""
        if self._context.config.reject_transactions:
            raise Refusal(
                ResponseCode.NO_PERMISSION,
                f"the broker[{self._context.address.ip}] sending transaction message is forbidden",
            )
        if len(self.halves) >= OPEN_MAX:
            raise Refusal(
                ResponseCode.SYSTEM_BUSY, f"{OPEN_MAX} transactions are undecided, try later"
            )
        return half_of(message)

    def stored(self, half: Message, placed: Appended) -> None:
        wait_ms = immunity_ms(half.properties, self._context.config.transaction_timeout_ms)
        due_ms = placed.store_timestamp + wait_ms
        self.halves.add(placed.queue_offset, placed.physical_offset, due_ms)

    # -- decisions -------------------------------------------------------------------------------

    def end(self, connection: Connection, command: Command) -> Response | None:
        fields = command.fields(EndTransactionFields)
        if fields.commit_or_rollback not in (TRANSACTION_COMMIT, TRANSACTION_ROLLBACK):
            return Response()  # Its producer does not know yet; it will be asked.
        half = self._checked(fields)
        final = None
        if fields.commit_or_rollback == TRANSACTION_COMMIT:
            final = committed(half)
            if final is None:
                raise Refusal(ResponseCode.SYSTEM_ERROR, "the half message has no real topic")

        def settled(code: ResponseCode, remark: str | None) -> None:
            connection.answer(command, Response(code, remark))

        self._record(half.queue_offset, final, settled)
        self._count(half, final)
        return None

    def _count(self, half: StoredMessage, final: Message | None) -> None:
        topic = (property_value(half.properties, REAL_TOPIC.encode()) or b"").decode(
            errors="replace"
        )
        name = ROLLED_BACK_NUMS if final is None else COMMITTED_NUMS
        self._context.stats.meter(name, topic).total += 1

    def _checked(self, fields: EndTransactionFields) -> StoredMessage:
        """The half message that a decision is about, if it may be decided so."""
        found = self.halves.get(fields.tran_state_table_offset)
        half = self._context.store.message_at(fields.commit_log_offset)
        if half is None or half.topic != HALF_TOPIC:
            raise _refused("Find prepared transaction message failed")
        group = property_value(half.properties, PRODUCER_GROUP) or b""
        if group != fields.producer_group.encode():
            raise _refused("The producer group wrong")
        if half.queue_offset != fields.tran_state_table_offset:
            raise _refused("The transaction state table offset wrong")
        if found is None or found.physical_offset != fields.commit_log_offset:
            raise _refused("The transaction has been decided already")
        if property_value(half.properties, IMMUNITY_S) and not fields.from_transaction_check:
            wait_ms = immunity_ms(half.properties, self._context.config.transaction_timeout_ms)
            if self._context.clock.now_ms() > half.store_timestamp + wait_ms:
                raise Refusal(
                    ResponseCode.ILLEGAL_OPERATION,
                    "too late: the producer is being asked about this transaction",
                )
        return half

    def _record(
        self,
        offset: int,
        final: Message | None,
        settled: Settled | None = None,
    ) -> None:
        """Write a decision, behind the message if there is one."""
        half = self.halves.get(offset)
        assert half is not None
        record = done(offset, self._context.clock.now_ms())
        before = self._context.store.appended.value
        message = None if half.delivered else final
        try:
            self._inbox.put_decision(message, record, settled or _ignored)
        except Refusal:
            # The message may be in the log, and only the record have found no room.
            if message is not None and self._context.store.appended.value > before:
                half.delivered = True
            raise
        self.halves.decide(offset)

    # -- questions -------------------------------------------------------------------------------

    def _plan(self) -> None:
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(LOOK_INTERVAL_S, self._look_and_plan)

    def _look_and_plan(self) -> None:
        self._plan()
        self.look()

    def look(self) -> None:
        """Ask about half messages whose producers have been silent for too long."""
        config, now_ms = self._context.config, self._context.clock.now_ms()
        self._unheard.clear()
        for offset in self.halves.take_due(now_ms, QUESTIONS_PER_LOOK):
            self._ask_or_give_up(offset)
            if self.halves.get(offset) is not None:
                self.halves.again(offset, now_ms + config.transaction_check_interval_ms)
        for group, count in self._unheard.items():
            log.warning(
                "nobody of producer group %s is there to be asked about %d half messages",
                group, count,
            )  # fmt: skip

    def _ask_or_give_up(self, offset: int) -> None:
        config = self._context.config
        found = self.halves.get(offset)
        assert found is not None
        half = self._context.store.message_at(found.physical_offset)
        if half is None:
            log.error("half message %d is not in the log any more", offset)
            self.halves.decide(offset)
            return
        if found.checks < config.transaction_checks_max:
            # A question that nobody heard is none.
            found.checks += self._ask(half)
            self.halves.touch()
            return
        log.error("half message %d is put aside after %d questions", offset, found.checks)
        self._context.topics.create_for_retry(CHECK_EXCEEDED_TOPIC, 1)
        try:
            self._record(offset, given_up(half))
        except Refusal as refusal:
            log.error("half message %d must wait: %s", offset, refusal)

    def _ask(self, half: StoredMessage) -> bool:
        group = (property_value(half.properties, PRODUCER_GROUP) or b"").decode(errors="replace")
        members = self._context.clients.producers(group)
        if not members:
            self._unheard[group] += 1
            return False
        self._turn += 1
        member = members[self._turn % len(members)]
        unique_key = (property_value(half.properties, UNIQUE_KEY.encode()) or b"").decode()
        fields = {
            "topic": half.topic,
            "commitLogOffset": str(half.physical_offset),
            "tranStateTableOffset": str(half.queue_offset),
            "msgId": unique_key,
            "transactionId": unique_key,
            "offsetMsgId": offset_id(self._store_host, half.physical_offset),
            "bname": self._context.config.name,
        }
        body = self._as_record(half)
        member.connection.tell(Request(RequestCode.CHECK_TRANSACTION_STATE, fields, body))
        return True

    def _as_record(self, half: StoredMessage) -> bytes:
        message = shown_to_producer(half)
        room = len(message.body) + len(message.properties) + len(message.topic.encode())
        view = memoryview(bytearray(room + RECORD_SLACK_BYTES))
        size = encode_record(
            view, 0, len(view), message, half.queue_offset, half.physical_offset,
            half.store_timestamp, self._store_host, False,
        )  # fmt: skip
        return bytes(view[:size])


def _refused(remark: str) -> Refusal:
    return Refusal(ResponseCode.SYSTEM_ERROR, remark)


def _ignored(code: ResponseCode, remark: str | None) -> None:
    if code != ResponseCode.SUCCESS:
        log.error("a decision may not be durable: %s", remark)
