"""A message on its way into the log, and one read back from it.

`Message` is what a sender decides; the store adds queue offset, physical offset and store time
when it encodes the record. Properties stay encoded on the hot way: most handlers never look.
"""

from typing import Final

import msgspec

from . import properties as props
from .host import Host, pack_host
from .java import tag_key

NO_HOST: Final = pack_host("127.0.0.1", 0)


class Message(msgspec.Struct, gc=False):
    topic: str
    queue_id: int
    body: bytes
    properties: bytes = b""
    flag: int = 0
    sys_flag: int = 0
    born_timestamp: int = 0
    born_host: bytes = NO_HOST
    """Packed as in the record (see host.py): 8 bytes for IPv4, 20 for IPv6."""
    reconsume_times: int = 0
    prepared_transaction_offset: int = 0


class Appended(msgspec.Struct, frozen=True, gc=False):
    """Where a message was put."""

    physical_offset: int
    size: int
    queue_offset: int
    store_timestamp: int

    @property
    def end(self) -> int:
        """Where a watermark must be for this record to count."""
        return self.physical_offset + self.size


class StoredMessage(msgspec.Struct, frozen=True, gc=False):
    topic: str
    queue_id: int
    queue_offset: int
    physical_offset: int
    size: int
    """Bytes of the whole record in the log."""
    body: bytes
    """As stored: still compressed when sys_flag says so."""
    properties: bytes
    flag: int
    sys_flag: int
    body_crc: int
    born_timestamp: int
    born_host: Host
    store_timestamp: int
    store_host: Host
    reconsume_times: int
    prepared_transaction_offset: int

    def property_map(self) -> dict[str, str]:
        """The sender's and broker's properties, without the record's own checksum."""
        decoded = props.decode_properties(self.properties)
        decoded.pop(props.RECORD_CRC, None)
        return decoded

    def has_key(self, key: str) -> bool:
        """Whether a search for `key` means this message: its unique id, its tag or one of its
        keys."""
        decoded = props.decode_properties(self.properties)
        if decoded.get(props.UNIQUE_KEY) == key or tag_key(decoded.get(props.TAGS, "")) == key:
            return True
        return key in decoded.get(props.KEYS, "").split(props.KEY_SEPARATOR)
