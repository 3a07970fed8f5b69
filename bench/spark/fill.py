"""The same messages for both systems: number, key and 128 bytes made of the number's digits.

Ours are appended to a store before its broker starts, as a Java client would have sent them; a
Kafka's topic is filled by Spark's own sink.
"""

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from cometmq.protocol.host import pack_host
from cometmq.protocol.message import Message
from cometmq.store.config import StoreConfig
from cometmq.store.message_store import MessageStore

from ..report import progress

QUEUES: Final = 4
BODY_BYTES: Final = 128
DIGITS: Final = 16
"""Of the number, at the beginning of a body and again and again behind."""
APPEND: Final = 256
"""Messages appended at once."""
FLUSH_MS: Final = 60_000
_HOST: Final = pack_host("192.168.1.17", 51234)
_OWN: Final = b"UNIQ_KEY\x01C0A8011100002A139F%014X\x02KEYS\x01order-%09d\x02TAGS\x01Tag%d\x02"
_SENT: Final = (
    b"WAIT\x01true\x02"
    b"MSG_REGION\x01DefaultRegion\x02CLUSTER\x01DefaultCluster\x02TRACE_ON\x01true\x02"
)

# The same as expressions of Spark, over a column `id`.
KEY_SQL: Final = "concat('order-', lpad(id, 9, '0'))"
# (Cheap ones: rows are made while a sink is measured, at the cost of both sides.)
BODY_SQL: Final = f"cast(repeat(lpad(id, {DIGITS}, '0'), {BODY_BYTES // DIGITS}) as binary)"
QUEUE_SQL: Final = f"cast(id % {QUEUES} as int)"


def body(number: int) -> bytes:
    return b"%0*d" % (DIGITS, number) * (BODY_BYTES // DIGITS)


def message(topic: str, number: int, now_ms: int) -> Message:
    return Message(
        topic=topic,
        queue_id=number % QUEUES,
        body=body(number),
        properties=_OWN % (number, number, number // QUEUES % QUEUES) + _SENT,
        born_timestamp=now_ms,
        born_host=_HOST,
    )


def fill_store(root: Path, topic: str, count: int) -> None:
    store = MessageStore(StoreConfig(root=root))
    store.open()
    try:
        for batch in _batches(topic, count):
            store.append_all(batch)
            store.dispatch()
        store.flushed.wait(store.appended.value, FLUSH_MS)
    finally:
        store.close()


def _batches(topic: str, count: int) -> Iterator[list[Message]]:
    now_ms = time.time_ns() // 1_000_000
    for first in range(0, count, APPEND):
        if first and first % (APPEND * 4096) == 0:
            progress(f"store: {first:,} of {count:,} messages")
        last = min(first + APPEND, count)
        yield [message(topic, number, now_ms) for number in range(first, last)]
