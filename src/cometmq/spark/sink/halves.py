"""Half messages: stored by tasks, shown to consumers when the driver decides so."""

import zlib
from collections.abc import Mapping
from typing import NamedTuple

from cometmq.client.producer.results import SendAnswer
from cometmq.protocol.message_id import parse_offset_id
from cometmq.protocol.properties import decode_properties

from ..own_properties import own_properties
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
    row_crc: int
    """Tells it from another row that has the same id."""


def half_of(parcel: Parcel, answer: SendAnswer) -> Half:
    _, physical_offset = parse_offset_id(answer.msg_id)
    queue = parcel.queue
    return Half(
        queue.topic, queue.broker_name, queue.queue_id, answer.queue_offset, physical_offset,
        parcel.unique_id,
        row_crc(parcel.content.body, decode_properties(parcel.content.properties.encode())),
    )  # fmt: skip


def row_crc(body: bytes, properties: Mapping[str, str]) -> int:
    """The same for what a row was sent as and for what its broker shows in the end."""
    own = sorted(own_properties(properties).items())
    return zlib.crc32(repr(own).encode(errors="replace"), zlib.crc32(body))
