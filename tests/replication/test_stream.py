"""The stream's bytes, out of any split of them."""

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cometmq.replication.errors import BrokenStream
from cometmq.replication.stream import FRAME_BYTES_MAX, Frames, Reports, frame_header, report

Splits = list[int]


def split(data: bytes, sizes: Splits) -> list[bytes]:
    pieces, at = [], 0
    for size in sizes:
        pieces.append(data[at : at + size])
        at += size
    return [piece for piece in (*pieces, data[at:]) if piece]


def test_bytes_are_those_of_rocketmq() -> None:
    assert frame_header(0x0102, 3) == struct.pack(">qi", 0x0102, 3)
    assert report(77) == bytes(7) + b"M"


@given(
    offset=st.integers(0, 2**62),
    bodies=st.lists(st.binary(max_size=50), max_size=8),
    sizes=st.lists(st.integers(1, 20), max_size=40),
)
def test_frames_are_read_from_any_split(offset: int, bodies: list[bytes], sizes: Splits) -> None:
    sent, at = b"", offset
    for body in bodies:
        sent += frame_header(at, len(body)) + body
        at += len(body)
    frames, got, expected = Frames(), b"", offset
    signs_of_life = 0
    for piece in split(sent, sizes):
        for where, data in frames.feed(piece):
            assert where == expected
            got += data
            expected += len(data)
            signs_of_life += not len(data)
    assert got == b"".join(bodies)
    assert signs_of_life == sum(not body for body in bodies)


@given(
    offsets=st.lists(st.integers(0, 2**62), min_size=1, max_size=10),
    sizes=st.lists(st.integers(1, 20), max_size=40),
)
def test_the_last_report_counts(offsets: list[int], sizes: Splits) -> None:
    reports, last = Reports(), None
    for piece in split(b"".join(map(report, offsets)), sizes):
        told = reports.feed(piece)
        last = last if told is None else told
    assert last == offsets[-1]


@pytest.mark.parametrize(
    "header", [frame_header(-1, 5), frame_header(0, -1), frame_header(0, FRAME_BYTES_MAX + 1)]
)
def test_a_frame_that_cannot_be_is_an_error(header: bytes) -> None:
    with pytest.raises(BrokenStream):
        list(Frames().feed(header))


def test_a_report_that_cannot_be_is_an_error() -> None:
    with pytest.raises(BrokenStream):
        Reports().feed(report(-5))
