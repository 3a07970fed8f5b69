"""Half messages: stored by tasks, shown to consumers when the driver decides so."""

import zlib
from typing import NamedTuple

from cometmq.client.producer.results import SendAnswer
from cometmq.protocol.message_id import parse_offset_id

from .parcels import Parcel


class Half(NamedTuple):
    """A half message is known by where its broker keeps it."""

    topic: str
    broker_name: str
    queue_id: int
    """Of its topic: where it is once it is committed."""
    queue_offset: int
    """In the queue of half messages."""
    physical_offset: int
    unique_id: str
    body_crc: int
    """Tells it from another row that has the same id."""


def half_of(parcel: Parcel, answer: SendAnswer) -> Half:
    _, physical_offset = parse_offset_id(answer.msg_id)
    queue = parcel.queue
    return Half(
        queue.topic, queue.broker_name, queue.queue_id, answer.queue_offset, physical_offset,
        parcel.unique_id, zlib.crc32(parcel.content.body),
    )  # fmt: skip
