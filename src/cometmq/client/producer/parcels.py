"""What one request carries: a message or a batch, the same in all attempts to send it.

A parcel is settled once: its futures get their results, or all of them the error.
"""

import asyncio
from collections.abc import Callable, Sequence

import msgspec

from cometmq.protocol.command import Request
from cometmq.protocol.message_queue import MessageQueue

from .results import SendAnswer, SendResult, SendStatus

DEFAULT_TOPIC = "TBW102"
"""The topic after whose pattern brokers make new ones."""
Choose = Callable[[Sequence[MessageQueue]], MessageQueue]
"""The queue for a parcel out of those of its topic."""


def always(queue: MessageQueue) -> Choose:
    return lambda _: queue


class Content(msgspec.Struct, gc=False):
    """The part of a request that is known before a queue is."""

    code: int
    properties: str
    body: bytes
    sys_flag: int
    flag: int
    born_ms: int
    is_batch: bool = False


def send_request(
    topic: str, content: Content, queue: MessageQueue, group: str, default_topic_queues: int
) -> Request:
    """The request that brings a content to a queue; `default_topic_queues` is for a topic that is
    made by its first message."""
    fields = {
        "a": group,
        "b": topic,
        "c": DEFAULT_TOPIC,
        "d": str(default_topic_queues),
        "e": str(queue.queue_id),
        "f": str(content.sys_flag),
        "g": str(content.born_ms),
        "h": str(content.flag),
        "i": content.properties,
        "j": "0",
        "k": "false",
        "m": "true" if content.is_batch else "false",
        "n": queue.broker_name,
    }
    return Request(content.code, fields, content.body)


class Parcel:
    __slots__ = (
        "asked_at", "at", "choose", "content", "deadline", "elsewhere", "futures", "ids",
        "size", "topic", "tries", "unsafe",
    )  # fmt: skip

    def __init__(
        self,
        topic: str,
        content: Content,
        ids: list[str],
        futures: list[asyncio.Future[SendResult]],
        size: int,
        deadline: float,
        *,
        choose: Choose | None = None,
        elsewhere: bool = False,
    ) -> None:
        self.topic = topic
        self.content = content
        self.ids = ids
        self.futures = futures
        self.size = size
        """What it takes of the bytes in flight."""
        self.deadline = deadline
        """By the loop's clock, for all attempts together."""
        self.choose = choose
        """None: any queue will do."""
        self.elsewhere = elsewhere
        """Whether another broker may get it when one refuses it."""
        self.at: MessageQueue | None = None
        """Where it is sent to; None when that is still, or again, to be found out."""
        self.asked_at = 0.0
        self.tries = 0
        self.unsafe: tuple[SendAnswer, SendStatus, MessageQueue] | None = None
        """Where it is stored already, but not as safely as it should be."""

    def succeed(self, answer: SendAnswer, status: SendStatus, at: MessageQueue) -> None:
        if answer.queue_id != at.queue_id:
            at = MessageQueue(at.topic, at.broker_name, answer.queue_id)
        offset_ids = answer.msg_id.split(",")
        if len(offset_ids) != len(self.ids):  # A topic that keeps a batch as one record.
            offset_ids = offset_ids[:1] * len(self.ids)
        offset = answer.queue_offset
        transaction_id, recall_handle = answer.transaction_id, answer.recall_handle
        for future, message_id, offset_id in zip(self.futures, self.ids, offset_ids, strict=True):
            if not future.done():
                future.set_result(
                    SendResult(
                        message_id, offset_id, at, offset, status, transaction_id, recall_handle
                    )
                )
            offset += 1

    def fail(self, error: Exception) -> None:
        for future in self.futures:
            if not future.done():
                future.set_exception(error)
