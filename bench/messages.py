"""Messages as a broker hands them to its store: what a Java client sends, and what is added."""

from collections.abc import Iterator

from cometmq.protocol.host import pack_host
from cometmq.protocol.message import Message

TOPIC = "BenchTopic"
QUEUES = 8
TAGS = ("TagA", "TagB", "TagC", "TagD")
BODY_BYTES = 128
BATCH = 32
"""Messages that come with one read of a socket, and in one answer to a pull."""

_BORN_HOST = pack_host("192.168.1.17", 51234)
_ADDED = (
    b"WAIT\x01true\x02"
    b"MSG_REGION\x01DefaultRegion\x02CLUSTER\x01DefaultCluster\x02TRACE_ON\x01true\x02"
)
_TAGS = tuple(f"TAGS\x01{tag}\x02".encode() for tag in TAGS)


def batches(count: int, start: int = 0) -> Iterator[list[Message]]:
    """`count` messages in batches, round the queues; each queue has every tag equally often."""
    for first in range(start, start + count, BATCH):
        yield [message(number) for number in range(first, min(first + BATCH, start + count))]


def message(number: int) -> Message:
    # A unique id is address, process and counter: the counter comes last, as a client's does.
    properties = b"UNIQ_KEY\x01C0A8011100002A139F%014X\x02" % number
    return Message(
        topic=TOPIC,
        queue_id=number % QUEUES,
        body=number.to_bytes(8, "big") * (BODY_BYTES // 8),
        properties=properties + _TAGS[number // QUEUES % len(TAGS)] + _ADDED,
        born_timestamp=1_763_000_000_000 + number // 1000,
        born_host=_BORN_HOST,
    )
