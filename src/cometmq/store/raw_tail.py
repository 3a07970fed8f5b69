"""Where whole records end in bytes that are copied from one broker's log to another's.

Such bytes come as they lie there, cut anywhere. Only whole records may be dispatched, so whoever
copies asks how far they go. A place that no record begins at is passed over when a whole one
follows, as everywhere: the other log has the same damage, and dispatch reports it.
"""

import struct

from cometmq.protocol.hot import scan_records
from cometmq.protocol.layout import BLANK_MAGIC, FIXED_BYTES_MIN
from cometmq.protocol.scan import Stop

from .errors import StoreMismatch
from .log_walk import RECORD_MAGICS, next_record
from .segment import Segment
from .segments import SegmentChain

HEAD_BYTES = 36
"""Up to and with the field that names a record's offset: what `begins_record` needs to be sure."""
_SIZE = struct.Struct(">i")
_MAGIC_END = 8
_POSITION_AT = 28
_BLANK = BLANK_MAGIC.to_bytes(4, "big")


def whole_end(segments: SegmentChain, start: int, end: int) -> int:
    """The end of the last whole record of [start, end); `start` when there is none.

    StoreMismatch when the records are laid out for files of another size.
    """
    at = start
    while at < end:
        segment = segments.find(at)
        if segment is None:
            return at
        limit = min(end, segment.end) - segment.base
        scan = scan_records(segment.view, at - segment.base, limit, segment.base, (), False, False)
        at = segment.base + scan.position
        if scan.stop is Stop.BLANK:
            _require_file_end(segment, at)
            if end < segment.end:
                return at
            at = segment.end
        elif scan.stop is Stop.DAMAGED:
            if _is_cut_off(segment, at, end):
                return at
            found = next_record(segments, segment, at, end)
            if found is None:
                return at
            at = found
    return at


def whole_records(segments: SegmentChain, start: int, end: int, bytes_max: int) -> bytes:
    """Whole records of one file from `start` on: at least one, else no more than `bytes_max`, none
    that reaches beyond `end`; a file's padding counts as a record. Nothing when the file is gone.
    Both `start` and `end` are borders of records."""
    segment = segments.find(start)
    if segment is None:
        return b""
    at, limit = start - segment.base, min(end, segment.end) - segment.base
    if limit - at <= bytes_max:
        return bytes(segment.view[at:limit])
    scan = scan_records(segment.view, at, at + bytes_max, segment.base, (), False, False)
    stop = scan.position if scan.position > at else at + _first_bytes(segment, start)
    return bytes(segment.view[at : min(stop, limit)])


def _first_bytes(segment: Segment, at: int) -> int:
    """Size of the record at an offset, or of the padding there."""
    if segment.end - at < _MAGIC_END or is_padding(segment, at):
        return segment.end - at
    (size,) = _SIZE.unpack_from(segment.view, at - segment.base)
    if size < FIXED_BYTES_MIN:
        raise StoreMismatch(f"no record begins at {at}")
    return int(size)


def is_padding(segment: Segment, at: int) -> bool:
    """Whether the marker that fills up a file stands at an offset."""
    position, left = at - segment.base, segment.end - at
    expected = left.to_bytes(4, "big") + _BLANK
    return left >= _MAGIC_END and bytes(segment.view[position : position + _MAGIC_END]) == expected


def begins_record(head: bytes | bytearray | memoryview, offset: int) -> bool:
    """Whether the first bytes of something can be those of the record at `offset`, or of the
    marker that ends a file."""
    if len(head) < _MAGIC_END:
        return True
    magic = bytes(head[4:_MAGIC_END])
    if magic == _BLANK:
        return True
    position = bytes(head[_POSITION_AT:HEAD_BYTES])
    return magic in RECORD_MAGICS and offset.to_bytes(8, "big").startswith(position)


def _require_file_end(segment: Segment, at: int) -> None:
    """The marker says how many bytes its file has left."""
    (left,) = _SIZE.unpack_from(segment.view, at - segment.base)
    if at + left != segment.end:
        raise StoreMismatch(
            f"a CommitLog file ends at {at + left} there and at {segment.end} here: "
            "mappedFileSizeCommitLog must be the same"
        )


def _is_cut_off(segment: Segment, at: int, end: int) -> bool:
    """Whether the rest of a record is still under way."""
    if end - at < _MAGIC_END:
        return end < segment.end
    position = at - segment.base
    head = segment.view[position : min(position + HEAD_BYTES, end - segment.base)]
    if not begins_record(head, at):
        return False
    (size,) = _SIZE.unpack_from(head)
    if size < FIXED_BYTES_MIN or at + size <= end:
        return False
    if at + size > segment.end:
        raise StoreMismatch(
            f"the record at {at} reaches beyond {segment.end}, where its CommitLog file ends here: "
            "mappedFileSizeCommitLog must be the same"
        )
    return True
