"""Offsets of queues: as JSON, in ranges, under limits, in parts; and the pace of a stream."""

import json

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from cometmq.protocol.message_queue import MessageQueue
from cometmq.spark.errors import DataLost
from cometmq.spark.topic.loss import Losses
from cometmq.spark.topic.offsets import (
    ByQueue,
    Progress,
    QueueRange,
    limited,
    ranges_between,
    split,
)
from cometmq.spark.topic.planning import Pace, behind_losses, ranges_of, reachable

queues = st.builds(
    MessageQueue,
    st.sampled_from(["orders", "%RETRY%shop", "a-b_c"]),
    st.sampled_from(["broker-a", "broker-b", "odd:name"]),
    st.integers(0, 20),
)
offsets = st.dictionaries(queues, st.integers(0, 10_000), max_size=12)
A, B = (MessageQueue("orders", "broker-a", number) for number in range(2))


def ranges_from(sizes: list[tuple[int, int]]) -> list[QueueRange]:
    return [
        QueueRange(MessageQueue("orders", "broker-a", number), start, start + size)
        for number, (start, size) in enumerate(sizes)
    ]


sized = st.lists(st.tuples(st.integers(0, 1000), st.integers(0, 1000)), max_size=8).map(ranges_from)


@settings(deadline=None)
@given(offsets, offsets)
def test_progress_survives_the_way_through_json(ends: ByQueue, began: ByQueue) -> None:
    progress = Progress(ends, began)
    text = json.dumps(progress.to_json())
    assert Progress.from_json(json.loads(text)) == progress
    shuffled = Progress(dict(reversed(ends.items())), dict(reversed(began.items())))
    assert json.dumps(shuffled.to_json()) == text


def test_a_stream_without_a_queue_has_begun_all_the_same() -> None:
    assert not Progress.from_json({}).has_begun
    assert Progress.from_json(Progress({}, {}).to_json()).has_begun


@settings(deadline=None)
@given(offsets, offsets)
def test_a_batch_reads_what_lies_between_and_nothing_else(start: ByQueue, end: ByQueue) -> None:
    latest = reachable(start, end)
    assert all(latest[queue] >= place for queue, place in start.items())
    told = {part.queue: (part.start, part.end) for part in ranges_between(start, latest)}
    assert told == {q: (at, latest[q]) for q, at in start.items() if latest[q] > at}


def test_what_is_left_of_a_queue_begins_behind_what_was_lost_but_not_behind_the_batch() -> None:
    places, latest = {A: 5, B: 5}, {A: 90, B: 90}
    assert behind_losses(places, latest, {A: 0}) == places
    assert behind_losses(places, latest, {A: 40, B: 200}) == {A: 40, B: 90}


def test_a_queue_that_is_new_in_a_batch_begins_where_the_batch_says() -> None:
    first = Progress({A: 10}, {A: 4})
    second = Progress({A: 12, B: 9}, {B: 7})
    assert ranges_of(Progress.from_json({}), first) == [QueueRange(A, 4, 10)]
    assert ranges_of(first, second) == [QueueRange(A, 10, 12), QueueRange(B, 7, 9)]


def test_a_source_that_stands_still_reads_nothing_again() -> None:
    """Spark hands over one offset twice when another source of the query has something new."""
    first = Progress({A: 10}, {A: 4})
    assert ranges_of(first, first) == []


@settings(deadline=None)
@given(sized, st.integers(1, 3000))
@example(ranges_from([(0, 1), (0, 1), (0, 4)]), 3)
def test_a_limit_holds_and_every_queue_advances(parts: list[QueueRange], limit: int) -> None:
    start = {part.queue: part.start for part in parts}
    end = {part.queue: part.end for part in parts}
    nearer = limited(start, end, limit)
    read = {part.queue: part.size for part in ranges_between(start, nearer)}
    assert sum(read.values()) <= max(limit, len(read))
    assert read.keys() == {part.queue for part in parts if part.size}
    assert all(nearer[part.queue] <= part.end for part in parts)


@settings(deadline=None)
@given(sized, st.integers(1, 300_000), st.integers(1, 3000), st.integers(1, 3000))
def test_a_limit_in_bytes_holds_where_first_messages_let_it(
    parts: list[QueueRange], limit: int, even_bytes: int, odd_bytes: int
) -> None:
    start = {part.queue: part.start for part in parts}
    end = {part.queue: part.end for part in parts}
    sizes = {queue: odd_bytes if queue.queue_id % 2 else even_bytes for queue in start}
    read = {
        part.queue: part.size
        for part in ranges_between(start, limited(start, end, None, limit, sizes))
    }
    assert read.keys() == {part.queue for part in parts if part.size}
    first_bytes = sum(sizes[queue] for queue in read)
    assert sum(size * sizes[queue] for queue, size in read.items()) <= max(limit, first_bytes)


def test_a_limit_in_bytes_goes_by_the_size_of_each_queues_messages() -> None:
    start, end = {A: 0, B: 0}, {A: 100, B: 100}
    assert limited(start, end, None, 50_000, {A: 10, B: 990}) == {A: 50, B: 50}
    assert limited(start, end, 40, 50_000, {A: 10, B: 990}) == {A: 20, B: 20}
    assert limited(start, end, None, 10**9, {A: 10, B: 990}) == end


@settings(deadline=None)
@given(sized, st.integers(1, 50), st.none() | st.integers(1, 500))
def test_parts_are_the_same_messages_in_enough_parts(
    parts: list[QueueRange], least: int, most: int | None
) -> None:
    pieces = split(parts, least, most)
    messages = [(part.queue, at) for part in parts for at in range(part.start, part.end)]
    assert [(part.queue, at) for part in pieces for at in range(part.start, part.end)] == messages
    assert len(pieces) >= min(least, len(messages))
    assert all(0 < piece.size <= (most or piece.size) for piece in pieces)


def test_a_stream_waits_for_enough_messages_but_not_for_ever() -> None:
    pace = Pace(100, delay_max_s=10.0)
    assert pace.is_due(3, now_s=1000.0)
    assert not pace.is_due(99, now_s=1009.0)
    assert pace.is_due(100, now_s=1009.5)
    assert not pace.is_due(1, now_s=1019.0)
    assert pace.is_due(1, now_s=1019.6)
    assert not pace.is_due(1, now_s=1020.0)


def test_a_loss_names_queue_and_offsets(caplog: pytest.LogCaptureFixture) -> None:
    part = QueueRange(A, 5, 90)
    with pytest.raises(DataLost, match=r"orders, queue broker-a:0: .* between 5 and 40: .*at 40"):
        Losses(fail=True).check_start(part, 40)
    told = Losses(fail=False)
    for _ in range(3):
        told.check_start(part, 40)
    assert [record.message for record in caplog.records] == [
        "topic orders, queue broker-a:0: messages are lost between 5 and 40: "
        "the queue now begins at 40; reading what is left"
    ]
    Losses(fail=True).check_start(part, 5)


def test_a_loss_that_grows_is_told_by_what_is_new(caplog: pytest.LogCaptureFixture) -> None:
    losses = Losses(fail=False)
    for end in (40, 60, 50):
        losses.check_start(QueueRange(A, 5, 90), end)
    assert losses.told == [QueueRange(A, 5, 60)]
    assert [record.message.split(":")[2] for record in caplog.records] == [
        " messages are lost between 5 and 40", " messages are lost between 40 and 60",
    ]  # fmt: skip
    losses.check_start(QueueRange(A, 70, 90), 80)
    assert losses.told == [QueueRange(A, 70, 80)]


def test_a_place_behind_its_queues_end_is_a_loss() -> None:
    with pytest.raises(DataLost, match=r"between 7 and 9: .* the queue ends at 7"):
        Losses(fail=True).check_place(QueueRange(A, 9, 7))
    Losses(fail=True).check_place(QueueRange(A, 7, 7))
