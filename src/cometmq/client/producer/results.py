"""What becomes of a send: where the broker put the message, and how safe it is there."""

import enum

import msgspec

from cometmq.protocol.codes import ResponseCode
from cometmq.protocol.message_queue import MessageQueue


class SendStatus(enum.Enum):
    """The message is stored in any case; all but OK say that it is less safe than it should be."""

    OK = "OK"
    FLUSH_DISK_TIMEOUT = "FLUSH_DISK_TIMEOUT"
    """Not known to be on disk yet."""
    FLUSH_SLAVE_TIMEOUT = "FLUSH_SLAVE_TIMEOUT"
    """No slave confirmed it in time."""
    SLAVE_NOT_AVAILABLE = "SLAVE_NOT_AVAILABLE"
    """On the master alone."""


STATUS_OF_CODE = {
    int(ResponseCode.SUCCESS): SendStatus.OK,
    int(ResponseCode.FLUSH_DISK_TIMEOUT): SendStatus.FLUSH_DISK_TIMEOUT,
    int(ResponseCode.FLUSH_SLAVE_TIMEOUT): SendStatus.FLUSH_SLAVE_TIMEOUT,
    int(ResponseCode.SLAVE_NOT_AVAILABLE): SendStatus.SLAVE_NOT_AVAILABLE,
}
"""The answers that mean stored."""


class SendResult(msgspec.Struct, frozen=True, gc=False):
    """Of one message, also when it travelled in a batch."""

    message_id: str
    """The unique id that the producer gave it; consumers see the same."""
    offset_message_id: str
    """Where the broker keeps it, as `Admin.view` takes it."""
    queue: MessageQueue
    queue_offset: int
    status: SendStatus = SendStatus.OK
    transaction_id: str = ""
    recall_handle: str = ""
    """Takes a message back that waits for its time (`Producer.recall`)."""


class SendAnswer(msgspec.Struct, gc=False, rename="camel"):
    """The header of a broker's answer. For a batch, `msg_id` has all ids, commas between them."""

    msg_id: str
    queue_id: int
    queue_offset: int
    transaction_id: str = ""
    recall_handle: str = ""
