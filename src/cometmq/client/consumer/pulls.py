"""One pull: the request, and what a broker may answer to it.

A broker holds a pull at a queue's end until a message comes (long polling). It may suggest a slave
for the next pull, when the messages are old and the slave has time.
"""

import dataclasses
import enum

import msgspec

from cometmq.protocol.codes import RequestCode, ResponseCode
from cometmq.protocol.command import Command
from cometmq.protocol.message_queue import MessageQueue
from cometmq.protocol.routes import MASTER_ID
from cometmq.protocol.subscription import SubscriptionData

from ..errors import ClientError, NoRoute
from ..link import Link
from ..received import ReceivedMessage, decode_messages

PULL_MESSAGES = 32
COMMIT = 1
SUSPEND = 2
SUBSCRIPTION = 4
_ANSWER_MARGIN_S = 15.0
"""A broker looks after held pulls every five seconds; the answer may be that late, and more."""
_ACCEPTED = frozenset({
    ResponseCode.SUCCESS, ResponseCode.PULL_NOT_FOUND, ResponseCode.PULL_RETRY_IMMEDIATELY,
    ResponseCode.PULL_OFFSET_MOVED,
})  # fmt: skip


class PullStatus(enum.Enum):
    FOUND = ResponseCode.SUCCESS
    NO_NEW = ResponseCode.PULL_NOT_FOUND
    NO_MATCH = ResponseCode.PULL_RETRY_IMMEDIATELY
    MOVED = ResponseCode.PULL_OFFSET_MOVED
    """The offset is not in the queue; `next_offset` is."""


class Pulled(msgspec.Struct):
    status: PullStatus
    messages: list[ReceivedMessage]
    next_offset: int
    min_offset: int
    max_offset: int


class _PullAnswer(msgspec.Struct, rename="camel"):
    next_begin_offset: int
    min_offset: int = 0
    max_offset: int = 0
    suggest_which_broker_id: int = MASTER_ID


@dataclasses.dataclass(frozen=True)
class PullOptions:
    messages_max: int = PULL_MESSAGES
    suspend_s: float = 15.0
    """How long a broker may hold a pull; 0: it answers at once."""
    sends_subscription: bool = False
    """For consumers of which the broker knows no subscription by heartbeat."""


class Puller:
    """Pulls for one group."""

    def __init__(self, link: Link, group: str, options: PullOptions | None = None) -> None:
        self._link = link
        self._group = group
        self._options = options or PullOptions()
        self._suggested: dict[MessageQueue, int] = {}

    async def pull(
        self,
        queue: MessageQueue,
        offset: int,
        subscription: SubscriptionData,
        *,
        commit_offset: int | None = None,
        options: PullOptions | None = None,
    ) -> Pulled:
        options = options or self._options
        address, broker_id = self._where(queue)
        flag = SUBSCRIPTION if options.sends_subscription else 0
        if options.suspend_s > 0:
            flag |= SUSPEND
        if commit_offset is not None and broker_id == MASTER_ID:
            flag |= COMMIT
        fields = {
            "consumerGroup": self._group,
            "topic": queue.topic,
            "queueId": queue.queue_id,
            "queueOffset": offset,
            "maxMsgNums": options.messages_max,
            "sysFlag": flag,
            "commitOffset": commit_offset if flag & COMMIT else 0,
            "suspendTimeoutMillis": round(options.suspend_s * 1000),
            "subscription": subscription.sub_string if flag & SUBSCRIPTION else None,
            "subVersion": subscription.sub_version,
            "expressionType": subscription.expression_type,
        }
        timeout_s = options.suspend_s + _ANSWER_MARGIN_S
        try:
            answer = await self._link.ask(
                address, RequestCode.PULL_MESSAGE, fields, timeout_s=timeout_s, accept=_ACCEPTED
            )
        except ClientError:
            self._suggested.pop(queue, None)  # A slave that fails is not asked again.
            raise
        return self._pulled(queue, answer)

    def _where(self, queue: MessageQueue) -> tuple[str, int]:
        routes = self._link.routes
        broker_id = self._suggested.get(queue, MASTER_ID)
        address = routes.address_of(queue.broker_name, broker_id)
        if address is None:
            address, broker_id = routes.any_address_of(queue.broker_name), -1
        if address is None:
            raise NoRoute(f"no broker {queue.broker_name} is known; its queues cannot be read")
        return address, broker_id

    def _pulled(self, queue: MessageQueue, answer: Command) -> Pulled:
        told = answer.fields(_PullAnswer)
        self._suggested[queue] = told.suggest_which_broker_id
        messages = decode_messages(answer.body, queue.broker_name)
        return Pulled(
            PullStatus(answer.code), messages, told.next_begin_offset, told.min_offset,
            told.max_offset,
        )  # fmt: skip
