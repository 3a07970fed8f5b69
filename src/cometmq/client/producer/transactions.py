"""Transactions: a message that consumers see only if its sender's own work succeeded.

The message is stored first, but held back; then the sender does its work and decides. A broker
that hears no decision asks for one (`check`), this producer or another one of its group. Checks
are bounded in number; a question that finds no room is dropped, since the broker asks again.
"""

import asyncio
import enum
import inspect
import logging
from collections.abc import Awaitable, Callable
from typing import Any, Final, Unpack

import msgspec

from cometmq.clock import Clock
from cometmq.protocol.codes import RequestCode, ResponseCode
from cometmq.protocol.command import Command, Request
from cometmq.protocol.flags import TRANSACTION_COMMIT, TRANSACTION_ROLLBACK
from cometmq.protocol.message_id import parse_offset_id
from cometmq.protocol.numbers import Int64
from cometmq.transport.connection import Connection, Handler

from ..cluster import Cluster, text_fields
from ..errors import ClientError, IllegalArgument, error_of
from ..link import transport_errors
from ..message import Message
from ..received import ReceivedMessage, decode_messages
from .choices import choice
from .options import ProducerKeywords, ProducerOptions
from .producer import Producer
from .results import SendResult, SendStatus

log = logging.getLogger(__name__)
HALF: Final = "TRAN_MSG"
GROUP: Final = "PGROUP"
CHECKS_WAITING_MAX: Final = 2000


class Decision(enum.Enum):
    COMMIT = TRANSACTION_COMMIT
    ROLLBACK = TRANSACTION_ROLLBACK
    UNKNOWN = 0
    """The broker asks later."""


Check = Callable[[ReceivedMessage], Decision | Awaitable[Decision]]
"""What became of the work that belongs to a message; `message.message_id` is its transaction."""
LocalTransaction = Callable[[Message, str], Decision | Awaitable[Decision]]
"""The sender's own work: called with the message and the id of its transaction."""


class TransactionResult(msgspec.Struct, frozen=True):
    sent: SendResult
    decision: Decision


class CheckFields(msgspec.Struct, gc=False, rename="camel"):
    """Which half message is meant: the header of CHECK_TRANSACTION_STATE."""

    tran_state_table_offset: Int64
    commit_log_offset: Int64
    topic: str = ""
    transaction_id: str = ""
    bname: str = ""


def end_fields(
    group: str, half: CheckFields, message_id: str, decision: Decision
) -> dict[str, object]:
    """What END_TRANSACTION says."""
    return {
        "producerGroup": group,
        "topic": half.topic or None,
        "tranStateTableOffset": half.tran_state_table_offset,
        "commitLogOffset": half.commit_log_offset,
        "commitOrRollback": decision.value,
        "msgId": message_id,
        "transactionId": half.transaction_id or None,
        "bname": half.bname or None,
    }


class TransactionProducer(Producer):
    """A producer whose messages may depend on work of its own.

    `check` is asked about transactions without a decision: an async function, or a plain one, which
    runs in a thread. Up to `checks_at_once` run at the same time.
    """

    def __init__(
        self,
        cluster: str | Cluster,
        *,
        group: str,
        check: Check,
        checks_at_once: int = 16,
        client_id: str = "",
        clock: Clock | None = None,
        options: ProducerOptions | None = None,
        **more: Unpack[ProducerKeywords],
    ) -> None:
        super().__init__(
            cluster, group=group, client_id=client_id, clock=clock, options=options, **more
        )
        if checks_at_once < 1:
            raise IllegalArgument("checks_at_once: 1 or more is possible")
        self._check = check
        self._checks = asyncio.Semaphore(checks_at_once)
        self._checks_waiting = 0

    def _handlers(self) -> dict[int, Handler]:
        return {**super()._handlers(), RequestCode.CHECK_TRANSACTION_STATE: self._asked}

    async def send_in_transaction(
        self, message: Message, local_transaction: LocalTransaction
    ) -> TransactionResult:
        """Store a message, do the work, and commit or roll back as the work decides.

        The work is not done when the message could not be stored safely; then it is rolled back.
        What the work raises is raised here; the broker will ask `check` what became of it.
        """
        sent = await self._send_half(message)
        decision = Decision.ROLLBACK
        if sent.status is SendStatus.OK:
            decision = await _called(local_transaction, message, sent.message_id)
        await self._end(sent, decision)
        return TransactionResult(sent, decision)

    async def _send_half(self, message: Message) -> SendResult:
        outbox = self._outbox
        if message.is_delayed:
            raise IllegalArgument("a message in a transaction cannot be delayed, too")
        choose = choice(message, None, None, None)
        properties = outbox.checked(message, {HALF: "true", GROUP: self.group})
        await outbox.take_room(1, len(message.body))
        return await outbox.send_alone(
            message, properties, choose, elsewhere=choose is None, is_half=True
        )

    # -- decisions -------------------------------------------------------------------------------

    async def _end(self, sent: SendResult, decision: Decision) -> None:
        _, commit_log_offset = parse_offset_id(sent.offset_message_id)
        half = CheckFields(
            sent.queue_offset, commit_log_offset, sent.queue.topic, sent.transaction_id,
            sent.queue.broker_name,
        )  # fmt: skip
        fields = end_fields(self.group, half, sent.message_id, decision)
        try:
            connection = await self._outbox.deliveries.connection_to(sent.queue)
            await self._tell(connection, decision, fields)
        except ClientError as error:
            log.warning("%s of %s: the broker will ask: %s", decision, sent.message_id, error)

    async def _tell(
        self, connection: Connection, decision: Decision, fields: dict[str, object]
    ) -> None:
        request = self._link.signed(Request(RequestCode.END_TRANSACTION, text_fields(fields)))
        if decision is Decision.UNKNOWN:
            connection.tell(request)  # RocketMQ gives no answer to that.
            return
        with transport_errors():
            answer = await connection.request(request, self.options.timeout_s)
        if answer.code != ResponseCode.SUCCESS:
            raise error_of(answer.code, answer.remark, str(connection.peer))

    # -- questions -------------------------------------------------------------------------------

    def _asked(self, connection: Connection, command: Command) -> None:
        """A broker wants to know; the answer goes by a request of our own."""
        fields = command.fields(CheckFields)
        (message,) = decode_messages(command.body, broker_name="")
        if message.properties.get(GROUP) != self.group:
            log.warning("asked about %s, which is of another group", message.message_id)
        elif self._checks_waiting >= CHECKS_WAITING_MAX:
            log.warning("%d checks wait; the broker must ask again", self._checks_waiting)
        else:
            self._checks_waiting += 1
            self._link.spawn(self._answer(connection, fields, message))

    async def _answer(
        self, connection: Connection, asked: CheckFields, message: ReceivedMessage
    ) -> None:
        try:
            async with self._checks:
                decision = await self._checked(message)
        finally:
            self._checks_waiting -= 1
        fields = end_fields(self.group, asked, message.message_id, decision)
        fields["fromTransactionCheck"] = True
        try:
            await self._tell(connection, decision, fields)
        except ClientError as error:
            log.warning(
                "%s of %s: the broker will ask again: %s", decision, message.message_id, error
            )

    async def _checked(self, message: ReceivedMessage) -> Decision:
        try:
            return await _called(self._check, message)
        except Exception:
            log.exception("the check of %s failed; the broker will ask again", message.message_id)
            return Decision.UNKNOWN


async def _called(function: Callable[..., Any], *arguments: object) -> Decision:
    """What the user's function says: an async one here, a plain one in a thread."""
    if inspect.iscoroutinefunction(function):
        decision = await function(*arguments)
    else:
        decision = await asyncio.to_thread(function, *arguments)
        if inspect.isawaitable(decision):
            decision = await decision
    if not isinstance(decision, Decision):
        raise IllegalArgument(f"a transaction ends with a Decision, not with {decision!r}")
    return decision
