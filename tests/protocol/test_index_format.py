"""Index files: keys find their records through slots and chains, laid out as RocketMQ does."""

import random
from collections.abc import Iterable

import pytest

from cometmq.protocol import java
from cometmq.protocol.hot import index_count_below, index_insert, index_lookup, index_relink
from cometmq.protocol.layout import (
    INDEX_HEADER,
    INDEX_HEADER_BYTES,
    INDEX_ITEM,
    INDEX_ITEM_BYTES,
    KEY,
    KEY_BYTES,
)

from .rocketmq_bytes import (
    SEALED_INDEX,
    SEALED_INDEX_ITEMS,
    SEALED_INDEX_SLOTS,
    TIMED_INDEX,
    TIMED_INDEX_ITEMS,
    TIMED_INDEX_SLOTS,
    TIMED_KEYS,
)

SLOTS = 5
ITEMS = 40
START_MS = 1_700_000_000_000
ALWAYS = (0, 1 << 62)

Item = tuple[int, int, int]
"""Hash, physical offset, store time."""


def file_bytes(slots: int = SLOTS, items: int = ITEMS) -> int:
    return INDEX_HEADER_BYTES + slots * 4 + items * INDEX_ITEM_BYTES


def packed(keys: Iterable[Item]) -> bytes:
    return b"".join(KEY.pack(*key) for key in keys)


def index_of(keys: Iterable[Item], slots: int = SLOTS, items: int = ITEMS) -> bytearray:
    data = bytearray(file_bytes(slots, items))
    raw = packed(keys)
    assert index_insert(memoryview(data), slots, items, raw, 0) == len(raw)
    return data


def found(
    data: bytes | bytearray,
    hashed: int,
    window: tuple[int, int] = ALWAYS,
    count_max: int = 1000,
    slots: int = SLOTS,
) -> list[int]:
    return index_lookup(memoryview(data), slots, hashed, *window, count_max)


def many_keys(count: int, seed: int = 1) -> list[Item]:
    chance = random.Random(seed)
    return [
        (chance.randrange(12), 1000 + number * 100, START_MS + number * 700)
        for number in range(count)
    ]


class TestLookup:
    def test_an_empty_file_has_no_keys(self) -> None:
        assert found(bytes(file_bytes()), 3) == []
        assert found(index_of([]), 3) == []

    def test_records_come_newest_first(self) -> None:
        data = index_of([(3, 100, START_MS), (4, 200, START_MS), (3, 300, START_MS + 5000)])
        assert found(data, 3) == [300, 100]
        assert found(data, 4) == [200]

    def test_keys_that_share_a_slot_are_told_apart(self) -> None:
        data = index_of([(1, 100, START_MS), (1 + SLOTS, 200, START_MS), (1, 300, START_MS)])
        assert found(data, 1) == [300, 100]
        assert found(data, 1 + SLOTS) == [200]
        assert found(data, 1 + SLOTS * 2) == []

    def test_no_more_than_asked_for(self) -> None:
        data = index_of([(3, number * 100, START_MS) for number in range(1, 9)])
        assert found(data, 3, count_max=3) == [800, 700, 600]
        assert found(data, 3, count_max=0) == []

    def test_every_key_is_found_in_long_chains(self) -> None:
        keys = many_keys(ITEMS - 1)
        data = index_of(keys)
        for hashed in range(13):
            expected = [physical for key, physical, _ in reversed(keys) if key == hashed]
            assert found(data, hashed) == expected

    def test_the_largest_hash_is_found(self) -> None:
        assert found(index_of([(0x7FFFFFFF, 100, START_MS)]), 0x7FFFFFFF) == [100]

    def test_hash_0_at_offset_0_is_found(self) -> None:
        assert found(index_of([(0, 0, START_MS)]), 0) == [0]

    def test_a_chain_that_leads_upwards_ends_instead_of_running_forever(self) -> None:
        data = index_of([(3, 100, START_MS), (3, 200, START_MS)])
        first_item_previous = INDEX_HEADER_BYTES + SLOTS * 4 + INDEX_ITEM_BYTES + 16
        data[first_item_previous : first_item_previous + 4] = (2).to_bytes(4, "big")
        assert found(data, 3) == [200, 100]

    def test_a_slot_beyond_the_items_leads_nowhere(self) -> None:
        data = index_of([(3, 100, START_MS)])
        slot_at = INDEX_HEADER_BYTES + 4 * 4
        data[slot_at : slot_at + 4] = (30).to_bytes(4, "big")
        assert found(data, 4) == []


class TestTimeRange:
    keys = tuple((3, 100 * number, START_MS + 10_000 * number) for number in range(1, 6))
    data = index_of(keys)

    def test_only_records_stored_within_it_are_found(self) -> None:
        assert found(self.data, 3, (START_MS + 20_000, START_MS + 40_000)) == [400, 300, 200]

    def test_both_ends_belong_to_it(self) -> None:
        assert found(self.data, 3, (START_MS + 30_000, START_MS + 30_000)) == [300]

    def test_nothing_before_or_after_the_file(self) -> None:
        assert found(self.data, 3, (0, START_MS + 9_999)) == []
        assert found(self.data, 3, (START_MS + 51_000, 1 << 62)) == []

    def test_the_second_in_which_a_record_was_stored_is_enough(self) -> None:
        """Items keep whole seconds since the file's first one."""
        data = index_of([(3, 100, START_MS), (3, 200, START_MS + 1_999)])
        assert found(data, 3, (START_MS + 1_999, START_MS + 5_000)) == [200]
        assert found(data, 3, (START_MS + 2_000, START_MS + 5_000)) == []

    def test_a_clock_set_back_counts_as_the_files_begin(self) -> None:
        data = index_of([(3, 100, START_MS), (3, 200, START_MS - 60_000)])
        assert found(data, 3, (START_MS, START_MS)) == [200, 100]

    def test_a_chain_is_left_at_the_first_item_before_the_range(self) -> None:
        """Store times only go up, so what lies behind it is older; RocketMQ does the same."""
        data = index_of([(3, 100, START_MS), (3, 200, START_MS + 60_000), (3, 300, START_MS)])
        assert found(data, 3, (START_MS + 30_000, 1 << 62)) == []


class TestInsert:
    def test_the_header_tells_times_offsets_slots_and_the_next_item(self) -> None:
        data = index_of([(3, 100, START_MS), (8, 200, START_MS + 1), (4, 300, START_MS + 2)])
        assert INDEX_HEADER.unpack_from(data) == (START_MS, START_MS + 2, 100, 300, 2, 4)

    def test_nothing_to_insert_leaves_a_file_without_items(self) -> None:
        assert INDEX_HEADER.unpack_from(index_of([])) == (0, 0, 0, 0, 0, 1)

    def test_keys_in_one_go_or_one_by_one_make_the_same_file(self) -> None:
        keys = many_keys(ITEMS - 1)
        data = bytearray(file_bytes())
        for key in keys:
            assert index_insert(memoryview(data), SLOTS, ITEMS, KEY.pack(*key), 0) == KEY_BYTES
        assert data == index_of(keys)

    def test_a_full_file_tells_where_to_go_on(self) -> None:
        keys = many_keys(100)
        raw = packed(keys)
        at, files = 0, []
        while at < len(raw):
            data = bytearray(file_bytes())
            at = index_insert(memoryview(data), SLOTS, ITEMS, raw, at)
            files.append(data)
        assert len(files) == 3
        for hashed in range(12):
            expected = [physical for key, physical, _ in reversed(keys) if key == hashed]
            assert [at for data in reversed(files) for at in found(data, hashed)] == expected

    def test_a_full_file_is_left_as_it_is(self) -> None:
        data = index_of(many_keys(ITEMS - 1))
        before = bytes(data)
        assert index_insert(memoryview(data), SLOTS, ITEMS, KEY.pack(1, 2, 3), 0) == 0
        assert data == before

    def test_items_at_the_limit_and_beyond_are_not_written(self) -> None:
        data = bytearray(file_bytes())
        assert index_insert(memoryview(data), SLOTS, 4, packed(many_keys(9)), 0) == 3 * KEY_BYTES
        assert data[INDEX_HEADER_BYTES + SLOTS * 4 + 4 * INDEX_ITEM_BYTES :] == bytes(
            (ITEMS - 4) * INDEX_ITEM_BYTES
        )

    def test_a_slot_that_points_beyond_the_items_counts_as_free(self) -> None:
        data = bytearray(file_bytes())
        data[INDEX_HEADER_BYTES : INDEX_HEADER_BYTES + 4] = (17).to_bytes(4, "big")
        index_insert(memoryview(data), SLOTS, ITEMS, KEY.pack(0, 100, START_MS), 0)
        assert INDEX_ITEM.unpack_from(data, INDEX_HEADER_BYTES + SLOTS * 4 + 20) == (0, 100, 0, 0)


class TestCountBelow:
    keys = tuple((number + 1, 100 * number, START_MS) for number in range(1, 11))
    data = index_of(keys)

    @pytest.mark.parametrize(
        ("limit", "count"), [(0, 1), (100, 1), (101, 2), (550, 6), (1000, 10), (1001, 11)]
    )
    def test_items_below_a_physical_offset_are_counted(self, limit: int, count: int) -> None:
        assert index_count_below(memoryview(self.data), SLOTS, limit, ITEMS) == count

    def test_the_count_ends_at_the_first_unwritten_item(self) -> None:
        assert index_count_below(memoryview(self.data), SLOTS, 1 << 62, ITEMS) == 11

    def test_the_count_ends_at_the_item_limit(self) -> None:
        assert index_count_below(memoryview(self.data), SLOTS, 1 << 62, 5) == 5
        assert index_count_below(memoryview(self.data), SLOTS, 1 << 62, 0) == 1

    def test_the_count_ends_where_offsets_go_back(self) -> None:
        data = index_of([(1, 300, START_MS), (2, 400, START_MS), (3, 200, START_MS)])
        assert index_count_below(memoryview(data), SLOTS, 1 << 62, ITEMS) == 3

    def test_several_keys_of_one_record_stay_together(self) -> None:
        data = index_of([(1, 300, START_MS), (2, 300, START_MS), (3, 400, START_MS)])
        assert index_count_below(memoryview(data), SLOTS, 400, ITEMS) == 3

    def test_an_empty_file_has_no_items_below_any_offset(self) -> None:
        data = bytes(file_bytes())
        assert index_count_below(memoryview(data), SLOTS, 1 << 62, ITEMS) == 1


class TestRelink:
    @pytest.mark.parametrize("count", [0, 1, 2, 17, ITEMS - 1])
    def test_slots_and_chains_are_as_if_inserted_one_by_one(self, count: int) -> None:
        data = index_of(many_keys(count))
        expected = bytes(data)
        slots_in_use = INDEX_HEADER.unpack_from(data)[4]
        chance = random.Random(2)
        data[INDEX_HEADER_BYTES : INDEX_HEADER_BYTES + SLOTS * 4] = chance.randbytes(SLOTS * 4)
        for number in range(1, count + 1):
            previous_at = INDEX_HEADER_BYTES + SLOTS * 4 + number * INDEX_ITEM_BYTES + 16
            data[previous_at : previous_at + 4] = chance.randbytes(4)
        assert index_relink(memoryview(data), SLOTS, count + 1) == slots_in_use
        assert data == expected

    def test_fewer_items_give_the_chains_of_a_shorter_file(self) -> None:
        keys = many_keys(30)
        data, shorter = index_of(keys), index_of(keys[:12])
        used = index_relink(memoryview(data), SLOTS, 13)
        assert used == INDEX_HEADER.unpack_from(shorter)[4]
        items_end = INDEX_HEADER_BYTES + SLOTS * 4 + 13 * INDEX_ITEM_BYTES
        assert data[INDEX_HEADER_BYTES:items_end] == shorter[INDEX_HEADER_BYTES:items_end]

    def test_insertion_goes_on_after_relinking(self) -> None:
        keys = many_keys(30)
        data = index_of(keys[:20])
        index_relink(memoryview(data), SLOTS, 21)
        index_insert(memoryview(data), SLOTS, ITEMS, packed(keys), 20 * KEY_BYTES)
        assert data == index_of(keys)


class TestAgainstRocketMQ:
    keys = tuple((java.key_hash("T", key), at, stored) for key, at, stored in TIMED_KEYS)

    def test_the_same_keys_make_the_same_file(self) -> None:
        data = bytearray(len(TIMED_INDEX))
        raw = packed(self.keys)
        at = index_insert(memoryview(data), TIMED_INDEX_SLOTS, TIMED_INDEX_ITEMS, raw, 0)
        assert at == len(raw) - KEY_BYTES
        assert data == TIMED_INDEX

    def test_its_files_are_searched(self) -> None:
        # As IndexFile.selectPhyOffset answers for T#a.
        hashed = java.key_hash("T", "a")
        assert found(TIMED_INDEX, hashed, slots=TIMED_INDEX_SLOTS) == [700, 600, 300, 100]
        window = (1_700_000_001_500, 1_700_000_061_500)
        assert found(TIMED_INDEX, hashed, window, slots=TIMED_INDEX_SLOTS) == [600, 300]

    def test_keys_of_its_store_are_found(self) -> None:
        def stored_under(topic: str, key: str) -> list[int]:
            return found(SEALED_INDEX, java.key_hash(topic, key), slots=SEALED_INDEX_SLOTS)

        assert stored_under("TopicTest", "0A010203ABCD11223344000000010000") == [0]
        assert stored_under("TopicTest", "k1") == stored_under("TopicTest", "k2") == [0]
        assert stored_under("TopicTest", "pk") == [1080]
        assert stored_under("TopicTest", "rk") == []
        assert stored_under("TopicTest", "ck") == [1366]

    @pytest.mark.parametrize(
        ("data", "slots", "items"),
        [
            (TIMED_INDEX, TIMED_INDEX_SLOTS, TIMED_INDEX_ITEMS),
            (SEALED_INDEX, SEALED_INDEX_SLOTS, SEALED_INDEX_ITEMS),
        ],
        ids=["timed", "sealed"],
    )
    def test_its_files_are_relinked_into_themselves(
        self, data: bytes, slots: int, items: int
    ) -> None:
        *_, used, count = INDEX_HEADER.unpack_from(data)
        again = bytearray(data)
        assert index_count_below(memoryview(again), slots, 1 << 62, items) == count
        assert index_relink(memoryview(again), slots, count) == used
        assert again == data
