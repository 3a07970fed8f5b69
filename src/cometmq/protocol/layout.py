"""Numbers and layouts of RocketMQ's files, known in this one place.

ConsumeQueue entry   int64 physical offset, int32 size, int64 tag hash
index file header    int64 begin/end store time, int64 begin/end physical offset,
                     int32 slots in use, int32 next item number (item 0 is never used)
index file           header, slot_count x int32 (newest item of the chain), items
index item           int32 key hash, int64 physical offset, int32 seconds since begin,
                     int32 item before it in the chain
"""

import struct

MAGIC_V1 = 0xDAA320A7
MAGIC_V2 = 0xDAA320AB
"""The topic's length takes two bytes; used for topics of over 127 bytes."""
BLANK_MAGIC = 0xCBD43194
"""Fills up a CommitLog file: int32 remaining bytes, this magic; the rest is undefined."""

FIXED_BYTES_MIN = 91
"""A record with IPv4 hosts less body, topic and properties."""
FILE_END_BYTES = 8
TOPIC_BYTES_MAX_V1 = 127
TOPIC_BYTES_MAX = 255
SCHEDULE_TOPIC = b"SCHEDULE_TOPIC_XXXX"

SEAL_PREFIX = b"__CRC32#\x01"
SEAL_BYTES = len(SEAL_PREFIX) + 11

ENTRY = struct.Struct(">qiq")
ENTRY_BYTES = ENTRY.size
HOLE_SIZE = 0x7FFFFFFF
"""Size of an entry that points to no record: before a queue's first message, or where one is
missing. RocketMQ fills the start of a queue's first file so."""

INDEX_HEADER = struct.Struct(">qqqqii")
INDEX_HEADER_BYTES = INDEX_HEADER.size
INDEX_ITEM = struct.Struct(">iqii")
INDEX_ITEM_BYTES = INDEX_ITEM.size
KEY = struct.Struct(">iqq")
KEY_BYTES = KEY.size
"""A key on its way from the scan into an index file; not a format on disk."""
