"""What brokers ask a consumer, mostly for an operator: its state, its offsets, to try a message."""

import time
from typing import TYPE_CHECKING

import msgspec

from cometmq.protocol.codes import RequestCode, ResponseCode
from cometmq.protocol.command import Command, Response
from cometmq.protocol.message_queue import decode_queue_numbers, encode_body
from cometmq.transport.connection import Connection, Handler, Refusal

from ..received import decode_messages
from .feed import Feed
from .handling import Handling

if TYPE_CHECKING:
    from .reader import Reader


class _GroupFields(msgspec.Struct, rename="camel"):
    consumer_group: str = ""
    group: str = ""
    topic: str = ""
    broker_name: str = ""


class Inquiries:
    """Only for a consumer with a handler can a message be tried."""

    def __init__(self, handling: Handling | None, *, is_orderly: bool) -> None:
        self.reader: Reader | None = None
        self._handling = handling
        self._is_orderly = is_orderly
        self._started_ms = _now_ms()
        self.handlers: dict[int, Handler] = {
            RequestCode.RESET_CONSUMER_CLIENT_OFFSET: self._reset,
            RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT: self._status,
            RequestCode.GET_CONSUMER_RUNNING_INFO: self._running_info,
            RequestCode.CONSUME_MESSAGE_DIRECTLY: self._consume,
        }

    def _reset(self, _: Connection, command: Command) -> Response:
        """An operator moved the group: forget what was read ahead, go on at the new offsets."""
        reader, fields = self._asked(command)
        for queue, offset in decode_queue_numbers(command.body).items():
            feed = reader.feeds.get(queue)
            if feed is not None and queue.topic == fields.topic:
                feed.reset(offset)
        return Response()

    def _status(self, _: Connection, command: Command) -> Response:
        reader, fields = self._asked(command)
        offsets = {
            queue: feed.commit_offset
            for queue, feed in reader.feeds.items()
            if queue.topic == fields.topic and feed.commit_offset is not None
        }
        return Response(body=encode_body({"messageQueueTable": offsets}))

    def _running_info(self, _: Connection, command: Command) -> Response:
        reader, _fields = self._asked(command)
        group = reader.group
        body = {
            "properties": {
                "PROP_NAMESERVER_ADDR": ";".join(reader.link.cluster.addresses),
                "PROP_CONSUME_TYPE": (
                    "CONSUME_ACTIVELY" if group.is_active else "CONSUME_PASSIVELY"
                ),
                "PROP_CONSUMEORDERLY": str(self._is_orderly).lower(),
                "PROP_THREADPOOL_CORE_SIZE": "-1",
                "PROP_CONSUMER_START_TIMESTAMP": str(self._started_ms),
                "PROP_CLIENT_VERSION": "V5_5_0",
            },
            "subscriptionSet": list(reader.membership.subscriptions.values()),
            "mqTable": {queue: _told(feed) for queue, feed in reader.feeds.items()},
            "statusTable": {},
            "userConsumerInfo": {},
        }
        return Response(body=encode_body(body))

    async def _consume(self, _: Connection, command: Command) -> Response:
        """Let the handler try one message; its offset is not touched."""
        _reader, fields = self._asked(command)
        if self._handling is None:
            raise Refusal(ResponseCode.SYSTEM_ERROR, "a pull consumer has no handler")
        begun = time.monotonic()
        (message,) = decode_messages(command.body, fields.broker_name)
        outcome = await self._handling.handle([message])
        result = {
            "order": self._is_orderly,
            "autoCommit": True,
            "consumeResult": "CR_SUCCESS" if outcome is None else "CR_LATER",
            "remark": None,
            "spentTimeMills": round((time.monotonic() - begun) * 1000),
        }
        return Response(body=msgspec.json.encode(result))

    def _asked(self, command: Command) -> "tuple[Reader, _GroupFields]":
        fields = command.fields(_GroupFields)
        group = fields.consumer_group or fields.group
        if self.reader is None or group != self.reader.group.name:
            raise Refusal(ResponseCode.SYSTEM_ERROR, f"group {group} is not in this consumer")
        return self.reader, fields


def _told(feed: Feed) -> dict[str, object]:
    window = feed.window
    return {
        "commitOffset": window.commit_offset if window else 0,
        "cachedMsgMinOffset": window.commit_offset if window else 0,
        "cachedMsgMaxOffset": max(window.next_offset - 1, 0) if window else 0,
        "cachedMsgCount": window.count if window else 0,
        "cachedMsgSizeInMiB": window.bytes // 1024**2 if window else 0,
        "transactionMsgMinOffset": 0,
        "transactionMsgMaxOffset": 0,
        "transactionMsgCount": 0,
        "locked": False,
        "tryUnlockTimes": 0,
        "lastLockTimestamp": 0,
        "droped": feed.is_dropped,
        "lastPullTimestamp": feed.last_pull_ms,
        "lastConsumeTimestamp": feed.last_pull_ms,
    }


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
