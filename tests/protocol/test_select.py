"""Selection: which bytes of a segment answer a read."""

import pytest

from cometmq.protocol.hot import join_slices, select_records
from cometmq.protocol.layout import ENTRY, ENTRY_BYTES, HOLE_SIZE
from cometmq.protocol.scan import Damage, Selection

from .records import Log, Put, end_marker, entries, entry, flipped, log_of, numbered_log, simple

BASE = 1 << 33
MANY = 1 << 30
HOLE = ENTRY.pack(0, HOLE_SIZE, 0)


def selected(
    raw: bytes,
    log: Log,
    *,
    first: int = 0,
    queue_offset: int = 0,
    wanted: frozenset[int] | None = None,
    count_max: int = MANY,
    bytes_max: int = MANY,
) -> Selection:
    return select_records(
        memoryview(raw), first * ENTRY_BYTES, len(raw), queue_offset, memoryview(log.data),
        log.base, len(log.data), wanted, count_max, bytes_max,
    )  # fmt: skip


def test_no_entries_select_nothing() -> None:
    assert selected(b"", numbered_log(1)) == Selection(0, [], 0, 0, [], False)


def test_adjoining_records_are_one_slice() -> None:
    log = numbered_log(4, BASE)
    found = selected(entries(log), log)
    assert found == Selection(4, [0, len(log.data)], 4, len(log.data), [], False)


def test_records_of_other_queues_between_make_several_slices() -> None:
    queues = (0, 0, 1, 0, 1, 1, 0, 0)
    offsets = [queues[:at].count(queue) for at, queue in enumerate(queues)]
    puts = [
        Put(simple(queue_id=queue), offset) for queue, offset in zip(queues, offsets, strict=True)
    ]
    log = log_of(puts, BASE)
    raw = b"".join(entry(log, number) for number, queue in enumerate(queues) if queue == 0)
    found = selected(raw, log)
    at = log.starts
    assert found.slices == [0, at[2], at[3], log.size(3), at[6], at[8] - at[6]]
    assert (found.entries_used, found.records, found.size) == (5, 5, sum(found.slices[1::2]))


def test_slices_join_to_the_records_they_were_chosen_for() -> None:
    log = numbered_log(6, BASE)
    joined = join_slices(memoryview(log.data), [0, log.size(0), log.starts[2], log.size(2) * 2])
    assert joined == log.data[: log.starts[1]] + log.data[log.starts[2] : log.starts[4]]


@pytest.mark.parametrize("slices", [[0, 5], [4, 1], [-1, 1], [0, -1], [0], [5, 0]])
def test_slices_beyond_the_log_are_refused(slices: list[int]) -> None:
    with pytest.raises(ValueError, match=r"slice|argument|whole number"):
        join_slices(memoryview(b"abcd"), slices)


def test_a_selection_may_start_at_a_later_entry() -> None:
    log = numbered_log(4, BASE)
    found = selected(entries(log), log, first=2, queue_offset=2)
    assert (found.entries_used, found.slices) == (2, [log.starts[2], log.size(2) + log.size(3)])


class TestFilter:
    log = numbered_log(6, BASE)
    raw = entries(log, 7, 8, 7, -9, 7, 8)

    def test_only_wanted_tags_are_selected(self) -> None:
        found = selected(self.raw, self.log, wanted=frozenset({7, -9}))
        at = self.log.starts
        assert found.slices == [0, at[1], at[2], at[5] - at[2]]
        assert (found.entries_used, found.records) == (6, 4)

    def test_no_filter_wants_every_tag(self) -> None:
        assert selected(self.raw, self.log, wanted=None).records == 6

    def test_a_filter_that_wants_nothing_uses_all_entries(self) -> None:
        assert selected(self.raw, self.log, wanted=frozenset()) == Selection(6, [], 0, 0, [], False)

    def test_unwanted_entries_do_not_count_towards_the_limit(self) -> None:
        found = selected(self.raw, self.log, wanted=frozenset({8}), count_max=2)
        assert (found.entries_used, found.records) == (6, 2)

    def test_unwanted_entries_may_point_anywhere(self) -> None:
        raw = ENTRY.pack(5, 100, 1) + entry(self.log, 1, 2)
        found = selected(raw, self.log, wanted=frozenset({2}))
        assert (found.entries_used, found.records, found.outside) == (2, 1, False)

    def test_a_hash_that_differs_beyond_32_bits_is_another(self) -> None:
        raw = entry(self.log, 0, 7 + (1 << 32))
        assert selected(raw, self.log, wanted=frozenset({7})).records == 0


class TestLimits:
    log = numbered_log(5, BASE)
    size = log.size(0)

    @pytest.mark.parametrize("count_max", [0, 1, 3, 5, 6])
    def test_no_more_records_than_asked_for(self, count_max: int) -> None:
        found = selected(entries(self.log), self.log, count_max=count_max)
        assert found.records == found.entries_used == min(count_max, 5)

    def test_no_more_bytes_than_asked_for(self) -> None:
        for bytes_max, records in ((self.size * 2, 2), (self.size * 3 - 1, 2), (self.size * 3, 3)):
            found = selected(entries(self.log), self.log, bytes_max=bytes_max)
            assert (found.records, found.size) == (records, records * self.size)

    @pytest.mark.parametrize("bytes_max", [-1, 0, 1])
    def test_one_record_gets_through_however_large_it_is(self, bytes_max: int) -> None:
        found = selected(entries(self.log), self.log, bytes_max=bytes_max)
        assert (found.records, found.entries_used) == (1, 1)

    def test_reading_on_where_a_limit_stopped_gives_the_rest(self) -> None:
        found = selected(entries(self.log), self.log, count_max=2)
        rest = selected(
            entries(self.log), self.log, first=found.entries_used, queue_offset=found.entries_used
        )
        assert rest.slices == [self.log.starts[2], self.size * 3]


class TestOtherSegments:
    def test_an_entry_beyond_the_segment_stops_the_selection(self) -> None:
        log = numbered_log(3, BASE)
        raw = entries(log)[:40] + ENTRY.pack(BASE + len(log.data), 100, 0) + entries(log)[40:]
        assert selected(raw, log) == Selection(2, [0, log.starts[2]], 2, log.starts[2], [], True)

    def test_an_entry_before_the_segment_stops_the_selection(self) -> None:
        log = numbered_log(1, BASE)
        assert selected(ENTRY.pack(BASE - 1, 100, 0), log) == Selection(0, [], 0, 0, [], True)

    def test_a_record_beyond_the_readable_bytes_is_outside(self) -> None:
        log = numbered_log(3, BASE)
        readable = log.starts[2]
        found = select_records(
            memoryview(entries(log)), 0, 60, 0, memoryview(log.data), BASE, readable, None, 9, MANY
        )
        assert (found.records, found.outside, found.damaged) == (2, True, [])


class TestDamagedRecords:
    log = numbered_log(4, BASE)

    def test_a_hole_is_reported_and_skipped(self) -> None:
        raw = HOLE + HOLE + entry(self.log, 2) + entry(self.log, 3)
        found = selected(raw, self.log)
        assert found.damaged == [(0, 0, Damage.MAGIC), (1, 0, Damage.MAGIC)]
        assert (found.entries_used, found.records, found.outside) == (4, 2, False)

    def test_a_damaged_record_is_reported_and_skipped(self) -> None:
        log = self.log._replace(data=flipped(self.log.data, self.log.starts[1] + 90, 1))
        found = selected(entries(log), log)
        at = log.starts
        assert found.damaged == [(1, BASE + at[1], Damage.CHECKSUM)]
        assert found.slices == [0, at[1], at[2], at[4] - at[2]]
        assert (found.entries_used, found.records) == (4, 3)

    def test_every_flipped_byte_keeps_its_record_out_of_all_slices(self) -> None:
        at = self.log.starts
        for place in range(at[1], at[2]):
            log = self.log._replace(data=flipped(self.log.data, place, 0x41))
            found = selected(entries(log), log)
            assert [number for number, _, _ in found.damaged] == [1]
            assert found.slices == [0, at[1], at[2], at[4] - at[2]]

    def test_damaged_records_do_not_count_towards_the_limit(self) -> None:
        log = self.log._replace(data=flipped(self.log.data, 90, 1))
        found = selected(entries(log), log, count_max=1)
        assert (found.records, found.slices) == (1, [log.starts[1], log.size(1)])

    def test_an_entry_with_another_size_is_damage(self) -> None:
        raw = ENTRY.pack(BASE, self.log.size(0) - 1, 0) + entry(self.log, 1)
        found = selected(raw, self.log)
        assert found.damaged == [(0, BASE, Damage.SIZE)]
        assert found.records == 1

    def test_a_record_of_another_queue_offset_is_damage(self) -> None:
        found = selected(entry(self.log, 2), self.log, queue_offset=1)
        assert found.damaged == [(0, BASE + self.log.starts[2], Damage.QUEUE_OFFSET)]

    def test_an_entry_that_points_between_records_is_damage(self) -> None:
        found = selected(ENTRY.pack(BASE + 1, self.log.size(0), 0), self.log)
        assert found.damaged == [(0, BASE + 1, Damage.MAGIC)]

    def test_an_entry_that_points_to_the_end_marker_is_damage(self) -> None:
        log = self.log._replace(data=self.log.data + end_marker())
        found = selected(ENTRY.pack(BASE + log.starts[4], 100, 0), log)
        assert found.damaged == [(0, BASE + log.starts[4], Damage.MAGIC)]

    def test_a_record_cut_off_by_the_readable_end_is_damage(self) -> None:
        readable = self.log.starts[2] - 1
        found = select_records(
            memoryview(entries(self.log)), 0, 40, 0, memoryview(self.log.data), BASE, readable,
            None, 9, MANY,
        )  # fmt: skip
        assert found.damaged == [(1, BASE + self.log.starts[1], Damage.SIZE)]
