"""Messages for the tests to read: what was sent, by where it is kept."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from cometmq.client.blocking import Producer
from cometmq.client.names import Message, SendResult
from cometmq.protocol.message_queue import MessageQueue
from cometmq.testing import BlockingEmbeddedBroker

Place = tuple[str, int, int]
"""Broker, queue and offset."""
Sent = dict[Place, bytes]
SHORT: Final = {
    "mappedFileSizeCommitLog": 8192, "fileReservedTime": 0, "mappedFileSizeConsumeQueue": 20 * 20,
}  # fmt: skip
"""Settings of brokers whose files are soon old enough to be deleted."""


def send(
    producer: Producer,
    topic: str,
    count: int,
    *,
    queues: Iterable[int] = range(4),
    broker: str = "broker-a",
    message: Callable[[int], Message] | None = None,
) -> Sent:
    """Messages one by one, queue after queue; `message` makes that of a number."""
    numbers = list(queues)
    sent: Sent = {}
    for number in range(count):
        queue = MessageQueue(topic, broker, numbers[number % len(numbers)])
        one = message(number) if message else Message(topic, b"message %d" % number)
        sent[place_of(producer.send(one, queue=queue))] = one.body
    return sent


def place_of(result: SendResult) -> Place:
    return result.queue.broker_name, result.queue.queue_id, result.queue_offset


def bodies(rows: Iterable[Any]) -> Sent:
    """Rows by where their messages are kept; none may be there twice."""
    rows = list(rows)
    found = {(row.brokerName, row.queueId, row.queueOffset): bytes(row.body) for row in rows}
    assert len(found) == len(rows), "a message came twice"
    return found


def options(broker: BlockingEmbeddedBroker, **more: object) -> dict[str, str]:
    return {"namesrvAddr": broker.namesrv, **{name: _text(more[name]) for name in more}}


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def offsets_of(topic: str, sent: Mapping[Place, bytes]) -> dict[str, dict[str, int]]:
    """Where a topic ends once all this was sent, as options and offsets write it."""
    ends: dict[str, int] = {}
    for broker, queue, offset in sent:
        name = f"{broker}:{queue}"
        ends[name] = max(ends.get(name, 0), offset + 1)
    return {topic: ends}
