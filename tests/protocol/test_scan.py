"""Scans: what dispatch learns from a walk over the log."""

import msgspec
import pytest

from cometmq.protocol import flags, java
from cometmq.protocol.hot import index_insert, scan_records
from cometmq.protocol.layout import ENTRY, KEY
from cometmq.protocol.message import Message
from cometmq.protocol.properties import encode_properties
from cometmq.protocol.scan import Damage, Run, Scan, Stop, queue_key, split_queue_key

from .records import (
    HOST_V6,
    STORED_AT,
    Log,
    Put,
    encoded,
    end_marker,
    entries,
    log_of,
    numbered_log,
    simple,
)
from .rocketmq_bytes import (
    PULLED,
    SEALED_INDEX,
    SEALED_INDEX_ITEMS,
    SEALED_INDEX_SLOTS,
    SEALED_QUEUES,
    SEALED_RECORDS,
)

BASE = 1 << 33
DELAYS_MS = (1_000, 5_000, 10_000)
SCHEDULE = "SCHEDULE_TOPIC_XXXX"


def scanned(data: bytes, base: int = BASE, delays_ms: tuple[int, ...] = ()) -> Scan:
    return scan_records(memoryview(data), 0, len(data), base, delays_ms, True)


def put(properties: dict[str, str], topic: str = "orders", sys_flag: int = 0) -> Put:
    message = simple(topic, properties=encode_properties(properties))
    return Put(msgspec.structs.replace(message, sys_flag=sys_flag), 0)


def log_of_one(properties: dict[str, str], topic: str = "orders", sys_flag: int = 0) -> Log:
    return log_of([put(properties, topic, sys_flag)], BASE)


def tag_code(properties: dict[str, str], topic: str = "orders") -> int:
    (run,) = scanned(log_of_one(properties, topic).data, BASE, DELAYS_MS).runs
    code: int = ENTRY.unpack(run.entries)[2]
    return code


def key_hashes(log: Log) -> list[int]:
    return [hashed for hashed, _, _ in KEY.iter_unpack(scanned(log.data).keys)]


def test_a_scan_of_nothing_finds_nothing() -> None:
    assert scanned(b"") == Scan(0, Stop.END, Damage.NONE, 0, 0, [], b"")


def test_a_scan_ends_behind_the_last_record_with_its_store_time() -> None:
    log = log_of([Put(simple(), 0, 1000), Put(simple(), 1, 3000), Put(simple(), 2, 2000)], BASE)
    scan = scanned(log.data)
    assert (scan.position, scan.stop, scan.damage) == (len(log.data), Stop.END, Damage.NONE)
    assert (scan.records, scan.last_timestamp) == (3, 2000)


def test_a_scan_may_start_and_end_between_records() -> None:
    log = numbered_log(5, BASE)
    scan = scan_records(memoryview(log.data), log.starts[1], log.starts[4], BASE, (), True)
    assert (scan.position, scan.stop, scan.records) == (log.starts[4], Stop.END, 3)
    assert scan.runs == [Run(queue_key("orders", 0), 1, entries(log)[20:80])]


def test_without_collecting_a_scan_only_walks() -> None:
    log = log_of_one({"UNIQ_KEY": "U1"})
    scan = scan_records(memoryview(log.data), 0, len(log.data), BASE, (), False)
    assert (scan.records, scan.runs, scan.keys) == (1, [], b"")


def test_an_end_marker_stops_a_scan() -> None:
    log = numbered_log(3, BASE)
    scan = scanned(log.data + end_marker(500) + b"\xee" * 492)
    assert (scan.position, scan.stop, scan.damage) == (len(log.data), Stop.BLANK, Damage.NONE)
    assert scan.records == 3


def test_an_end_marker_needs_no_more_than_its_own_8_bytes() -> None:
    log = numbered_log(1, BASE)
    assert scanned(log.data + end_marker()).stop == Stop.BLANK
    assert scanned(log.data + end_marker()[:7]).stop == Stop.DAMAGED


def test_zeros_behind_the_last_record_are_no_record() -> None:
    log = numbered_log(2, BASE)
    scan = scanned(log.data + bytes(200))
    assert (scan.position, scan.stop, scan.damage) == (
        len(log.data),
        Stop.DAMAGED,
        Damage.MAGIC,
    )


class TestRuns:
    def test_consecutive_offsets_of_a_queue_are_one_run(self) -> None:
        log = log_of([Put(simple(), number) for number in (7, 8, 9)], BASE)
        assert scanned(log.data).runs == [Run(queue_key("orders", 0), 7, entries(log))]

    def test_queues_that_alternate_have_a_run_each(self) -> None:
        places = [("a", 0, 5), ("a", 1, 0), ("b", 0, 9), ("a", 1, 1), ("a", 0, 6), ("b", 0, 10)]
        log = log_of([Put(simple(topic, queue), offset) for topic, queue, offset in places], BASE)
        raw = [entries(log)[at : at + 20] for at in range(0, 120, 20)]
        assert scanned(log.data).runs == [
            Run(queue_key("a", 0), 5, raw[0] + raw[4]),
            Run(queue_key("a", 1), 0, raw[1] + raw[3]),
            Run(queue_key("b", 0), 9, raw[2] + raw[5]),
        ]

    @pytest.mark.parametrize("jump", [0, 3, 5, 100], ids=["back", "again", "gap", "far"])
    def test_a_jump_closes_a_run_and_opens_another(self, jump: int) -> None:
        offsets = (2, 3, jump, jump + 1)
        log = log_of([Put(simple(), offset) for offset in offsets], BASE)
        queue = queue_key("orders", 0)
        assert scanned(log.data).runs == [
            Run(queue, 2, entries(log)[:40]),
            Run(queue, jump, entries(log)[40:]),
        ]

    def test_runs_closed_by_a_jump_come_first(self) -> None:
        places = [("a", 0), ("b", 0), ("a", 7), ("a", 8), ("b", 1)]
        log = log_of([Put(simple(topic), offset) for topic, offset in places], BASE)
        found = [(run.queue[:1], run.first_offset) for run in scanned(log.data).runs]
        assert found == [(b"a", 0), (b"a", 7), (b"b", 0)]

    def test_hundreds_of_entries_stay_in_order(self) -> None:
        log = numbered_log(300, BASE)
        (run,) = scanned(log.data).runs
        assert run == Run(queue_key("orders", 0), 0, entries(log))

    def test_queue_keys_are_split_into_what_they_were_made_of(self) -> None:
        for topic, queue_id in (("orders", 0), ("订单", 1 << 30), ("", -1)):
            assert split_queue_key(queue_key(topic, queue_id)) == (topic, queue_id)


class TestTagCodes:
    @pytest.mark.parametrize(
        ("tag", "hashed"),
        # From String.hashCode of Java 17.
        [("TagA", 2598919), ("标签", 857175), ("🚀 rocket", -1391342671), ("a*b||c", -1476109142)],
    )
    def test_an_entry_holds_javas_hash_of_the_tag(self, tag: str, hashed: int) -> None:
        assert tag_code({"KEYS": "k", "TAGS": tag}) == hashed

    def test_without_a_tag_the_code_is_0(self) -> None:
        assert tag_code({"TAG": "x", "TAGSS": "y"}) == 0

    def test_the_last_of_two_tags_counts(self) -> None:
        message = simple(properties=b"TAGS\x01a\x02TAGS\x01b\x02TAGS\x01\x02")
        (run,) = scanned(log_of([Put(message, 0)], BASE).data).runs
        assert ENTRY.unpack(run.entries)[2] == ord("b")

    def test_bytes_that_are_no_text_have_the_hash_of_their_replacement(self) -> None:
        message = simple(properties=b"TAGS\x01a\xff\x02")
        (run,) = scanned(log_of([Put(message, 0)], BASE).data).runs
        assert ENTRY.unpack(run.entries)[2] == java.string_hash("a\ufffd")


class TestDelayedMessages:
    @pytest.mark.parametrize(("level", "delay_ms"), [("1", 1_000), ("3", 10_000), ("4", 10_000)])
    def test_the_code_is_the_time_when_they_are_due(self, level: str, delay_ms: int) -> None:
        assert tag_code({"DELAY": level, "TAGS": "a"}, SCHEDULE) == STORED_AT + delay_ms

    @pytest.mark.parametrize("level", ["0", "-1", "x", "1x", "²", "4000000000"])
    def test_a_level_that_is_none_leaves_the_tags_hash(self, level: str) -> None:
        assert tag_code({"DELAY": level, "TAGS": "a"}, SCHEDULE) == ord("a")

    def test_a_missing_level_leaves_the_tags_hash(self) -> None:
        assert tag_code({"TAGS": "a"}, SCHEDULE) == ord("a")

    @pytest.mark.parametrize("topic", ["orders", "SCHEDULE_TOPIC_XXX", "SCHEDULE_TOPIC_XXXY"])
    def test_other_topics_have_no_due_time(self, topic: str) -> None:
        assert tag_code({"DELAY": "2", "TAGS": "a"}, topic) == ord("a")

    def test_without_delays_the_code_is_the_tags_hash(self) -> None:
        log = log_of_one({"DELAY": "2", "TAGS": "a"}, SCHEDULE)
        assert ENTRY.unpack(scanned(log.data).runs[0].entries)[2] == ord("a")


class TestTransactions:
    @pytest.mark.parametrize("sys_flag", [0, flags.TRANSACTION_COMMIT, 0xF00 | flags.COMPRESSED])
    def test_plain_and_committed_records_are_queued_and_indexed(self, sys_flag: int) -> None:
        scan = scanned(log_of_one({"KEYS": "k"}, sys_flag=sys_flag).data)
        assert len(scan.runs) == 1
        assert len(scan.keys) == KEY.size

    def test_a_prepared_record_is_indexed_but_not_queued(self) -> None:
        scan = scanned(log_of_one({"KEYS": "k"}, sys_flag=flags.TRANSACTION_PREPARED).data)
        assert scan.records == 1
        assert scan.runs == []
        assert len(scan.keys) == KEY.size

    def test_a_rolled_back_record_is_neither_queued_nor_indexed(self) -> None:
        scan = scanned(log_of_one({"KEYS": "k"}, sys_flag=flags.TRANSACTION_ROLLBACK).data)
        assert (scan.records, scan.runs, scan.keys) == (1, [], b"")

    def test_a_record_that_is_not_queued_does_not_break_a_run(self) -> None:
        prepared = put({}, sys_flag=flags.TRANSACTION_PREPARED)
        log = log_of([Put(simple(), 0), prepared, Put(simple(), 1)], BASE)
        (run,) = scanned(log.data).runs
        assert (run.first_offset, len(run.entries)) == (0, 40)


class TestIndexKeys:
    def test_the_unique_id_comes_first_and_then_every_key(self) -> None:
        log = log_of_one({"KEYS": "k1 k2", "UNIQ_KEY": "U1"})
        assert key_hashes(log) == [java.key_hash("orders", key) for key in ("U1", "k1", "k2")]

    def test_a_key_carries_where_and_when_its_record_was_stored(self) -> None:
        first, second = put({"KEYS": "a"}), put({"KEYS": "b"})._replace(stored_at=5)
        log = log_of([first, second], BASE)
        assert list(KEY.iter_unpack(scanned(log.data).keys)) == [
            (java.key_hash("orders", "a"), BASE, STORED_AT),
            (java.key_hash("orders", "b"), BASE + log.starts[1], 5),
        ]

    @pytest.mark.parametrize("keys", [" ", "   ", " k1", "k1 ", "  k1   k2  "])
    def test_blanks_around_keys_make_no_keys(self, keys: str) -> None:
        assert key_hashes(log_of_one({"KEYS": keys})) == [
            java.key_hash("orders", key) for key in keys.split()
        ]

    def test_only_blanks_split_keys(self) -> None:
        assert key_hashes(log_of_one({"KEYS": "k1\tk2,k3"})) == [
            java.key_hash("orders", "k1\tk2,k3")
        ]

    def test_keys_and_topics_may_be_of_any_script(self) -> None:
        log = log_of_one({"KEYS": "键 🚀 k"}, "订单")
        assert key_hashes(log) == [java.key_hash("订单", key) for key in ("键", "🚀", "k")]

    def test_a_message_without_keys_has_none(self) -> None:
        assert key_hashes(log_of_one({"KEY": "k", "UNIQ_KEYS": "u"})) == []

    @pytest.mark.parametrize(
        ("topic", "tag"), [("orders", "TagA"), ("orders", "标签"), ("订单", "a b")]
    )
    def test_the_tag_is_indexed_last_and_apart_from_keys(self, topic: str, tag: str) -> None:
        """As `topic#T#tag`, so that a key of the same text is another."""
        log = log_of_one({"TAGS": tag, "KEYS": "k1", "UNIQ_KEY": "U1"}, topic)
        texts = (f"{topic}#U1", f"{topic}#k1", f"{topic}#T#{tag}")
        assert key_hashes(log) == [abs(java.string_hash(text)) for text in texts]

    def test_hundreds_of_keys_are_all_there(self) -> None:
        keys = [f"key-{number}" for number in range(500)]
        assert key_hashes(log_of_one({"KEYS": " ".join(keys)})) == [
            java.key_hash("orders", key) for key in keys
        ]


class TestAgainstRocketMQ:
    DELAYS_MS = (1_000, 5_000, 10_000, 30_000)

    def test_dispatch_gives_the_queues_that_rocketmq_has(self) -> None:
        scan = scanned(b"".join(SEALED_RECORDS), 0, self.DELAYS_MS)
        assert (scan.stop, scan.records) == (Stop.END, len(SEALED_RECORDS))
        found = {split_queue_key(run.queue): run.entries for run in scan.runs}
        assert found == SEALED_QUEUES

    def test_dispatch_gives_the_index_file_that_rocketmq_has(self) -> None:
        scan = scanned(b"".join(SEALED_RECORDS), 0)
        data = bytearray(len(SEALED_INDEX))
        index_insert(memoryview(data), SEALED_INDEX_SLOTS, SEALED_INDEX_ITEMS, scan.keys, 0)
        assert data == SEALED_INDEX

    def test_pulled_batches_are_consecutive_in_their_queue(self) -> None:
        """A pull's answer has gaps between its records, so each is scanned on its own."""
        position, offsets = 0, []
        while position < len(PULLED):
            size = int.from_bytes(PULLED[position : position + 4], "big")
            physical = int.from_bytes(PULLED[position + 28 : position + 36], "big")
            scan = scanned(PULLED[position : position + size], physical)
            offsets.append([(split_queue_key(run.queue), run.first_offset) for run in scan.runs])
            position += size
        assert offsets == [[(("wiretest2", 0), offset)] for offset in range(4)]


def test_records_with_ipv6_hosts_tell_their_store_time() -> None:
    record = encoded(Message("orders", 0, b"x"), store_host=HOST_V6, physical_offset=BASE)
    assert scanned(record).last_timestamp == STORED_AT
