"""Taking back a message that waits for its time: RECALL_MESSAGE.

A recall is a record of the timer topic, due when its message is; both are in the log, so it holds
whatever happens in between. It is taken only as long as its message cannot have been delivered.
"""

from cometmq.protocol.codes import RequestCode, ResponseCode
from cometmq.protocol.command import Command, Response
from cometmq.protocol.errors import IllegalMessage
from cometmq.protocol.headers import RecallFields
from cometmq.protocol.host import pack_host
from cometmq.transport.connection import Connection, Handlers, Refusal

from ..context import Context
from ..inbox import Inbox
from .handle import RecallHandle
from .timed import recall_of
from .timers import Timers

_STORED = (
    ResponseCode.SUCCESS, ResponseCode.FLUSH_DISK_TIMEOUT, ResponseCode.FLUSH_SLAVE_TIMEOUT,
    ResponseCode.SLAVE_NOT_AVAILABLE,
)  # fmt: skip
"""Outcomes of a put that RocketMQ answers a recall with success for."""


class Recalls:
    def __init__(self, context: Context, inbox: Inbox, timers: Timers | None) -> None:
        self._context = context
        self._inbox = inbox
        self._timers = timers

    def handlers(self) -> Handlers:
        return {RequestCode.RECALL_MESSAGE: self.recall}

    def recall(self, connection: Connection, command: Command) -> Response | None:
        fields = command.fields(RecallFields)
        handle, timers = self._checked(fields)
        now_ms = self._context.clock.now_ms()
        answer = {"msgId": handle.unique_key, "MSG_REGION": self._context.config.region}

        def settled(code: ResponseCode, remark: str | None) -> None:
            if code in _STORED:
                connection.answer(command, Response(fields=answer))
            else:
                remark = f"recall failed, execute error: {remark}"
                connection.answer(command, Response(ResponseCode.SYSTEM_ERROR, remark))

        try:
            record = recall_of(
                handle.topic, handle.unique_key, handle.due_ms, fields.producer_group, now_ms,
                pack_host(*connection.peer),
            )  # fmt: skip
        except IllegalMessage as error:
            raise _illegal(str(error)) from None
        (placed,) = self._inbox.put([record], settled)
        timers.await_offset(placed.queue_offset)
        return None

    def _checked(self, fields: RecallFields) -> tuple[RecallHandle, Timers]:
        config = self._context.config
        if not config.recalls:
            raise Refusal(ResponseCode.NO_PERMISSION, "recall failed, operation is forbidden")
        if self._timers is None:
            raise Refusal(
                ResponseCode.SYSTEM_ERROR, "recall failed, execute error: timerWheelEnable is false"
            )
        if self._context.topics.get(fields.topic) is None:
            raise Refusal(
                ResponseCode.TOPIC_NOT_EXIST, f"recall failed, the topic[{fields.topic}] not exist"
            )
        try:
            handle = RecallHandle.decode(fields.recall_handle)
        except ValueError as error:
            raise _illegal(f"recall handle is invalid: {error}") from None
        if handle.topic != fields.topic:
            raise _illegal("recall failed, topic not match")
        if handle.broker != config.name:
            raise _illegal("recall failed, broker service not available")
        left_ms = handle.due_ms - self._context.clock.now_ms()
        if left_ms > config.timer_delay_max_s * 1000 or not self._timers.may_recall(handle.due_ms):
            raise _illegal("recall failed, timestamp invalid")
        if not self._timers.has_room_for_recall(handle.due_ms):
            raise Refusal(
                ResponseCode.SYSTEM_BUSY, "recall failed, too many recalls for this second"
            )
        return handle, self._timers


def _illegal(remark: str) -> Refusal:
    return Refusal(ResponseCode.ILLEGAL_OPERATION, remark)
