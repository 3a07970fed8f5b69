"""Batches: messages of one topic in one request, gathered by their sender or by themselves.

A gathering leaves when it is full or when its first message has lingered long enough; all its
messages then travel as one parcel, to one queue. What cannot be in a batch is not put in here.
"""

import asyncio
from collections.abc import Callable, Iterable, Iterator, Sequence

from cometmq.clock import SystemClock
from cometmq.protocol.batch import BATCHED_BYTES, encode_batched
from cometmq.protocol.codes import RequestCode
from cometmq.protocol.message_queue import MessageQueue
from cometmq.protocol.names import RETRY_PREFIX

from ..errors import IllegalArgument
from ..message import (
    BODY_BYTES_MAX,
    UNIQUE_ID_BYTES_MAX,
    WAIT,
    Message,
    encode_sent,
    with_unique_id,
)
from .parcels import Content, Parcel, always
from .results import SendResult

_OWN_BYTES = BATCHED_BYTES + UNIQUE_ID_BYTES_MAX
Leave = Callable[["Gathering"], None]
Key = tuple[str, MessageQueue | None, bool]
"""Topic, queue if it is to be that one, and whether the answer may wait for the disk."""


class Gathering:
    """Messages on their way into one request. All go to the same topic, and queue if one is set."""

    __slots__ = (
        "bodies", "encoded_bytes", "flags", "futures", "properties", "queue", "size", "timer",
        "topic", "waits",
    )  # fmt: skip

    def __init__(self, topic: str, queue: MessageQueue | None, waits: bool) -> None:
        self.topic = topic
        self.queue = queue
        self.waits = waits
        """Whether the answer may wait for the disk."""
        self.bodies: list[bytes] = []
        self.properties: list[str] = []
        self.flags: list[int] = []
        self.futures: list[asyncio.Future[SendResult]] = []
        self.size = 0
        """Bytes of the bodies."""
        self.encoded_bytes = 0
        """At most; a unique id takes more or less."""
        self.timer: asyncio.TimerHandle | None = None

    def add(
        self, message: Message, properties: str, takes: int, future: asyncio.Future[SendResult]
    ) -> None:
        """`takes` is what `bytes_in_batch` says of it."""
        body = message.body
        self.bodies.append(body)
        self.properties.append(properties)
        self.flags.append(message.flag)
        self.futures.append(future)
        self.size += len(body)
        self.encoded_bytes += takes

    def parcel(self, ids: list[str], born_ms: int, deadline: float) -> Parcel:
        """All of them, each with its unique id."""
        content = Content(
            RequestCode.SEND_BATCH_MESSAGE,
            f"{WAIT}\x01{'true' if self.waits else 'false'}\x02",
            self._encoded(ids),
            sys_flag=0,
            flag=0,
            born_ms=born_ms,
            is_batch=True,
        )
        return Parcel(
            self.topic, content, ids, self.futures, self.size, deadline,
            choose=None if self.queue is None else always(self.queue),
            elsewhere=self.queue is None,
        )  # fmt: skip

    def _encoded(self, ids: list[str]) -> bytes:
        return b"".join(
            [
                encode_batched(flag, body, with_unique_id(unique_id, properties).encode())
                for flag, body, unique_id, properties in zip(
                    self.flags, self.bodies, ids, self.properties, strict=True
                )
            ]
        )


class Lingering:
    """The gatherings that are not full yet: one for each topic and queue."""

    def __init__(self, leave: Leave, *, linger_s: float, bytes_max: int, messages_max: int) -> None:
        self._leave = leave
        self._linger_s = linger_s
        self._bytes_max = bytes_max
        self._messages_max = messages_max
        self._gatherings: dict[Key, Gathering] = {}
        self._loop = asyncio.get_running_loop()

    def add(
        self,
        message: Message,
        queue: MessageQueue | None,
        properties: str,
        future: asyncio.Future[SendResult],
    ) -> bool:
        """Whether it was taken: one that is too large even if it is the only one is not."""
        takes = bytes_in_batch(message.body, properties)
        if takes > self._bytes_max:
            return False
        key = (message.topic, queue, message.wait_store)
        gathering = self._gatherings.get(key)
        if gathering is None:
            gathering = self._open(key)
        elif gathering.encoded_bytes + takes > self._bytes_max:
            self._close(key)
            gathering = self._open(key)
        gathering.add(message, properties, takes, future)
        if len(gathering.bodies) >= self._messages_max:
            self._close(key)
        return True

    def flush(self) -> None:
        for key in list(self._gatherings):
            self._close(key)

    def flush_queue(self, queue: MessageQueue) -> None:
        """Let those of one queue go, ahead of a message that goes there alone."""
        for waits in (True, False):
            if (queue.topic, queue, waits) in self._gatherings:
                self._close((queue.topic, queue, waits))

    def _open(self, key: Key) -> Gathering:
        gathering = self._gatherings[key] = Gathering(*key)
        gathering.timer = self._loop.call_later(self._linger_s, self._close, key)
        return gathering

    def _close(self, key: Key) -> None:
        gathering = self._gatherings.pop(key)
        if gathering.timer is not None:
            gathering.timer.cancel()
        self._leave(gathering)


def check_batch(messages: Sequence[Message]) -> None:
    """IllegalArgument with what keeps these messages from being one batch."""
    if not messages:
        raise IllegalArgument("a batch without messages")
    first = messages[0]
    for message in messages:
        if message.topic != first.topic:
            raise IllegalArgument(f"a batch to two topics: {first.topic} and {message.topic}")
        if message.wait_store is not first.wait_store:
            raise IllegalArgument("a batch in which some messages wait for the disk, some don't")
        if message.is_delayed:
            raise IllegalArgument("a delayed message cannot be in a batch: send it alone")
    if first.topic.startswith(RETRY_PREFIX):
        raise IllegalArgument(f"{first.topic} takes no batches: send its messages one by one")


def split_batches(
    messages: Iterable[Message], bytes_max: int = BODY_BYTES_MAX
) -> Iterator[list[Message]]:
    """The messages in lists that are small enough for `send_batch`, in their order."""
    batch: list[Message] = []
    size = 0
    for message in messages:
        takes = bytes_in_batch(message.body, encode_sent(message, SystemClock(), {}))
        if batch and size + takes > bytes_max:
            yield batch
            batch, size = [], 0
        batch.append(message)
        size += takes
    if batch:
        yield batch


def bytes_in_batch(body: bytes, properties: str) -> int:
    """At most: a unique id may be shorter."""
    size = len(properties) if properties.isascii() else len(properties.encode())
    return _OWN_BYTES + len(body) + size
