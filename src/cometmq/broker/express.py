"""The short way of sends that have nothing unusual: all of one read at once, no object for each.

What the general way (`sends`) would do with them is known beforehand and kept here as rules: which
topics there are, what is added to every message, what an answer looks like. Everything else, and
everything that is to be refused, is left to it.
"""

from time import monotonic

from cometmq.protocol.codes import RequestCode
from cometmq.protocol.command import FRAME_BYTES_MAX
from cometmq.protocol.express import (
    MESSAGE_ID,
    QUEUE_ID,
    QUEUE_OFFSET,
    UNIQUE_ID,
    Queue,
    Rules,
    Taken,
    answer_patterns,
)
from cometmq.protocol.host import pack_host
from cometmq.protocol.names import RETRY_PREFIX
from cometmq.protocol.topic_config import PERM_WRITE
from cometmq.transport.connection import Connection
from cometmq.transport.latencies import Latencies

from .config import BrokerConfig
from .context import Context
from .inbox import Inbox
from .sends import answer_fields, arrival_properties, born_host
from .topics import NOT_FOR_CLIENTS, Topics

_HEADER_AT = 8
_SENDS = (b'{"code":310,', b'{"code":320,', b"\x01\x36", b"\x01\x40")
"""What headers of sends begin with, JSON and binary. A client that begins them differently loses
some time, pulls of others don't."""


_MESSAGE, _BATCH = RequestCode.SEND_MESSAGE_V2, RequestCode.SEND_BATCH_MESSAGE


class Express:
    def __init__(self, context: Context, inbox: Inbox, latencies: Latencies | None) -> None:
        self._context = context
        self._inbox = inbox
        self._latencies = latencies
        self._renew()

    def take(self, connection: Connection, data: bytes) -> int:
        """Put the sends into the log that some bytes begin with; where it stopped."""
        if not data.startswith(_SENDS, _HEADER_AT):
            return 0
        context = self._context
        if (
            context.config is not self._config
            or context.store.config is not self._store_config
            or context.topics.version is not self._topics_version
        ):
            self._renew()
        return self._inbox.put_usual(
            data, self._rules, born_host(connection), connection.answer_all,
            _Timed(self._latencies, monotonic()) if self._latencies is not None else None,
        )  # fmt: skip

    def _renew(self) -> None:
        """Make the rules anew; what they depend on is another object when it has changed."""
        context = self._context
        self._config = config = context.config
        self._store_config = context.store.config
        self._topics_version = context.topics.version
        message = answer_fields(config, MESSAGE_ID, QUEUE_ID, QUEUE_OFFSET, UNIQUE_ID)
        batch = answer_fields(config, MESSAGE_ID, QUEUE_ID, QUEUE_OFFSET)
        self._rules = Rules(
            topics=_UsualTopics(context.topics, config),
            frame_bytes_max=FRAME_BYTES_MAX,
            body_bytes_max=self._store_config.message_bytes_max,
            added=arrival_properties(config),
            host_digits=pack_host(*context.address).hex().upper().encode(),
            answers=answer_patterns(message, batch),
        )


class _Timed:
    """Notes how long the sends of one read took."""

    def __init__(self, latencies: Latencies, received: float) -> None:
        self._latencies = latencies
        self._received = received

    def __call__(self, taken: Taken, code: int) -> None:
        for number, count in enumerate(taken.sends):
            if count:
                request = _BATCH if number % 2 else _MESSAGE
                self._latencies.add_alike(request, code, self._received, count, oneway=number > 1)


class _UsualTopics(dict[bytes, tuple[Queue, ...]]):
    """The queues of each topic whose messages need no closer look; topics that do not exist are
    not remembered, so it has no more than the broker has."""

    def __init__(self, topics: Topics, config: BrokerConfig) -> None:
        super().__init__()
        self._topics = topics
        self._may_write = config.permission & PERM_WRITE != 0

    def __missing__(self, name: bytes) -> tuple[Queue, ...]:
        topic = self._topics.get(name.decode())
        if topic is None or not self._may_write:
            return ()
        text = topic.topic_name
        is_special = text in NOT_FOR_CLIENTS or text.startswith(RETRY_PREFIX)
        if is_special or topic.topic_filter_type == "MULTI_TAG":
            return ()
        count = max(topic.write_queue_nums, topic.read_queue_nums)
        queues = self[name] = tuple((text, number) for number in range(count))
        return queues
