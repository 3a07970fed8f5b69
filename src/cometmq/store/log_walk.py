"""A walk over the log, file by file, that knows what to do at a damaged place.

Used by recovery and dispatch. A walk never passes over damage by itself: it reports the place and
where whole records go on, and whoever walks decides.
"""

import itertools
import re
from collections.abc import Iterator

import msgspec

from cometmq.protocol.hot import check_record, scan_records
from cometmq.protocol.layout import MAGIC_V1, MAGIC_V2
from cometmq.protocol.scan import Damage, Scan, Stop

from .segment import Segment
from .segments import SegmentChain

PIECE_BYTES_MAX = 32 * 1024 * 1024
"""How much is scanned at a time, which bounds the memory for what is collected."""
RECORD_MAGICS = tuple(magic.to_bytes(4, "big") for magic in (MAGIC_V1, MAGIC_V2))
_MAGIC = re.compile(b"|".join(map(re.escape, RECORD_MAGICS)))
_SEARCH_BYTES = 1024 * 1024


class Piece(msgspec.Struct, frozen=True, gc=False):
    """Whole records of [start, end)."""

    start: int
    end: int
    scan: Scan


def joined(pieces: list[Piece], start: int, end: int) -> Scan | None:
    """One scan out of those of pieces; None if they are not [start, end) without a gap."""
    if not pieces or pieces[0].start != start or pieces[-1].end != end:
        return None
    last = pieces[-1].scan
    if len(pieces) == 1:
        return last
    if any(before.end != after.start for before, after in itertools.pairwise(pieces)):
        return None
    scans = [piece.scan for piece in pieces]
    return Scan(
        last.position, last.stop, last.damage, sum(scan.records for scan in scans),
        last.last_timestamp, [run for scan in scans for run in scan.runs],
        b"".join([scan.keys for scan in scans]),
    )  # fmt: skip


class Damaged(msgspec.Struct, frozen=True, gc=False):
    """No whole record at `start`; the next one is at `resume`, None when none follows."""

    start: int
    resume: int | None
    damage: Damage


def walk(
    segments: SegmentChain,
    start: int,
    end: int,
    delays_ms: tuple[int, ...] = (),
    *,
    collect: bool = False,
    verify: bool = True,
) -> Iterator[Piece | Damaged]:
    """Walk the records of [start, end); `end` may lie behind the last record."""
    at = start
    while at < end:
        segment = segments.find(at)
        if segment is None:
            return
        position = at - segment.base
        limit = min(end - segment.base, segment.size)
        bound = min(limit, position + PIECE_BYTES_MAX)
        scan = scan_records(segment.view, position, bound, segment.base, delays_ms, collect, verify)
        if scan.records:
            yield Piece(at, segment.base + scan.position, scan)
            at = segment.base + scan.position
        if scan.stop is Stop.BLANK or (scan.stop is Stop.END and scan.position == segment.size):
            at = segment.end
        elif scan.stop is Stop.DAMAGED and not scan.records:
            # Behind whole records it may be no damage but the piece's end: look again from here.
            resume = next_record(segments, segment, at, end)
            yield Damaged(at, resume, scan.damage)
            if resume is None:
                return
            at = resume


def next_record(segments: SegmentChain, segment: Segment, at: int, end: int) -> int | None:
    """The first whole record behind `at`."""
    found = _find_in(segment, at + 1 - segment.base, end)
    while found is None:
        following = segments.find(segment.end)
        if following is None or following.base >= end:
            return None
        segment = following
        if check_record(segment.view, 0, min(end - segment.base, segment.size), segment.base) > 0:
            return segment.base
        found = _find_in(segment, 1, end)
    return found


def _find_in(segment: Segment, position: int, end: int) -> int | None:
    """A record's start is a magic number four bytes on, a matching offset and a good checksum."""
    limit = min(end - segment.base, segment.size)
    for magic_at in _magic_places(segment, position + 4, limit):
        start = magic_at - 4
        if check_record(segment.view, start, limit, segment.base + start) > 0:
            return segment.base + start
    return None


def _magic_places(segment: Segment, position: int, limit: int) -> Iterator[int]:
    overlap = len(RECORD_MAGICS[0]) - 1
    for start, end in segment.data_ranges(position, limit):
        for at in range(start, end, _SEARCH_BYTES):
            piece = bytes(segment.view[at : min(at + _SEARCH_BYTES + overlap, limit)])
            yield from (at + match.start() for match in _MAGIC.finditer(piece))
