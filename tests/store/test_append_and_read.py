"""Messages come back as they were put in, by every way there is to ask for them."""

import struct
from pathlib import Path

import pytest

from cometmq.protocol import flags, java
from cometmq.protocol.errors import IllegalMessage
from cometmq.protocol.layout import BLANK_MAGIC
from cometmq.protocol.message import Message
from cometmq.protocol.message_id import offset_id, parse_offset_id
from cometmq.protocol.record import iter_records
from cometmq.store import segment
from cometmq.store.disk import Disk
from cometmq.store.errors import MessageTooLarge, StoreClosed, StoreLocked, TooManyQueues
from cometmq.store.message_store import MessageStore
from cometmq.store.reading import Boundary, ReadStatus
from cometmq.testing.clock import ManualClock

from .conftest import OpenStore
from .stores import fill, numbered, served, served_numbers, small_config


def test_every_message_is_served_with_all_it_had(open_store: OpenStore) -> None:
    store = open_store()
    fill(store, 500)
    messages = {message.flag: message for message in served(store).values()}
    assert sorted(messages) == list(range(500))
    for number, message in messages.items():
        sent = numbered(number)
        assert (message.topic, message.queue_id, message.body) == (
            sent.topic,
            sent.queue_id,
            sent.body,
        )
        assert message.property_map()["UNIQ_KEY"] == f"{number:032X}"
        assert message.property_map()["文"] == "宝"
        assert message.born_timestamp == sent.born_timestamp


def test_offsets_of_a_queue_count_up_from_zero(open_store: OpenStore) -> None:
    store = open_store()
    offsets = [store.put(Message("t", 3, b"x")).queue_offset for _ in range(120)]
    assert offsets == list(range(120))
    assert (store.min_offset("t", 3), store.max_offset("t", 3)) == (0, 120)


def test_a_full_file_ends_in_a_marker_and_the_next_begins_with_a_record(
    open_store: OpenStore,
) -> None:
    store = open_store()
    fill(store, 600)
    first, second = tuple(store.commit_log.segments)[:2]
    last = max(
        (m for m in served(store).values() if m.physical_offset < first.end),
        key=lambda m: m.physical_offset,
    )
    marker_at = last.physical_offset + last.size
    assert struct.unpack_from(">iI", first.view, marker_at) == (first.size - marker_at, BLANK_MAGIC)
    assert store.message_at(second.base) is not None


def test_the_next_file_is_prepared_before_it_is_needed(open_store: OpenStore) -> None:
    store = open_store()
    store.put(numbered(1))
    assert prepared_bytes(store, store.config.commit_log_file_bytes) > 0


def test_the_first_file_is_warm_before_the_first_message(open_store: OpenStore) -> None:
    store = open_store(warm_up=True)
    assert prepared_bytes(store, 0) > 0


def prepared_bytes(store: MessageStore, base: int) -> int:
    prepared = store.config.commit_log_dir / f"{base:020d}"
    for _ in range(1000):
        if prepared.exists() and prepared.stat().st_size == store.config.commit_log_file_bytes:
            return prepared.stat().st_size
        store.commit_log._allocator._thread.join(0.01)
    return 0


@pytest.mark.parametrize("old_kernel", [False, True])
def test_warm_up_leaves_the_file_as_it_is(
    open_store: OpenStore, monkeypatch: pytest.MonkeyPatch, old_kernel: bool
) -> None:
    if old_kernel:
        monkeypatch.setattr(segment, "_populate", lambda *_: False)
    store = open_store(warm_up=True)
    fill(store, 300)
    assert served_numbers(store) == list(range(300))


def test_a_read_answers_with_adjoining_records_as_one_slice(open_store: OpenStore) -> None:
    store = open_store()
    for _ in range(10):
        store.append(Message("t", 0, b"alone in the log"))
    store.dispatch()
    result = store.read("t", 0, 0)
    assert (result.status, result.count, len(result.slices)) == (ReadStatus.FOUND, 10, 1)
    assert result.slices[0].readonly
    assert result.slices[0].obj is store.commit_log.segments.first._map  # type: ignore[union-attr]


def test_a_read_answers_with_records_between_others_as_one_piece(open_store: OpenStore) -> None:
    """A slice each would cost more than the copy, all the way to the socket."""
    store = open_store()
    for number in range(40):
        store.append(Message("t", number % 4, b"%d" % number))
    store.dispatch()
    result = store.read("t", 1, 0)
    assert (result.status, result.count, len(result.slices)) == (ReadStatus.FOUND, 10, 1)
    assert result.slices[0].readonly
    assert len(result.slices[0]) == result.size
    bodies = [message.body for message in iter_records(result.slices[0])]
    assert bodies == [b"%d" % number for number in range(1, 40, 4)]


def test_tags_filter_by_hash(open_store: OpenStore) -> None:
    store = open_store()
    fill(store, 400)
    wanted = frozenset({java.string_hash("tag-0"), java.string_hash("tag-2")})
    tags = set()
    for queue_id in range(4):
        result = store.read("orders", queue_id, 0, count_max=1000, tag_hashes=wanted)
        assert result.next_offset == store.max_offset("orders", queue_id)
        tags |= {m.property_map()["TAGS"] for s in result.slices for m in iter_records(s)}
    assert tags == {"tag-0", "tag-2"}


def test_a_filter_that_matches_nothing_moves_on(open_store: OpenStore) -> None:
    store = open_store()
    fill(store, 100)
    result = store.read("orders", 0, 0, tag_hashes=frozenset({12345}))
    assert result.status is ReadStatus.NO_MATCHED_MESSAGE
    assert result.next_offset == store.max_offset("orders", 0)


@pytest.mark.parametrize(
    ("offset", "status", "next_offset"),
    [
        (5, ReadStatus.OFFSET_OVERFLOW_ONE, 5),
        (9, ReadStatus.OFFSET_OVERFLOW_BADLY, 5),
        (4, ReadStatus.FOUND, 5),
        (-1, ReadStatus.OFFSET_TOO_SMALL, 0),
    ],
)
def test_an_offset_outside_the_queue_is_told_where_to_go_on(
    open_store: OpenStore, offset: int, status: ReadStatus, next_offset: int
) -> None:
    store = open_store()
    for _ in range(5):
        store.put(Message("t", 0, b"x"))
    result = store.read("t", 0, offset)
    assert (result.status, result.next_offset) == (status, next_offset)


def test_an_unknown_queue_is_said_to_be_unknown(open_store: OpenStore) -> None:
    assert open_store().read("nowhere", 0, 0).status is ReadStatus.NO_MATCHED_LOGIC_QUEUE


def test_a_read_respects_its_limits_but_gives_one_message_at_least(open_store: OpenStore) -> None:
    store = open_store()
    for _ in range(20):
        store.put(Message("t", 0, b"x" * 1000))
    assert store.read("t", 0, 0, count_max=7).count == 7
    assert store.read("t", 0, 0, bytes_max=3500).count == 3
    assert store.read("t", 0, 0, bytes_max=1).count == 1


def test_reads_cross_log_and_queue_files(open_store: OpenStore) -> None:
    store = open_store()
    for number in range(200):
        store.put(Message("t", 0, b"%d" % number + b"x" * 2000))
    result = store.read("t", 0, 0, count_max=200, bytes_max=1 << 30)
    assert result.count == 200
    assert len(store.commit_log.segments) > 5


def test_a_message_is_found_by_its_offset_id(open_store: OpenStore) -> None:
    store = open_store()
    placed = store.put(numbered(7))
    host, physical = parse_offset_id(
        offset_id(store.commit_log._store_host, placed.physical_offset)
    )
    found = store.message_at(physical)
    assert found is not None
    assert (found.body, found.store_host) == (numbered(7).body, host)
    assert store.message_at(physical + 1) is None
    assert store.message_at(1 << 40) is None


def test_keys_and_unique_ids_are_found_newest_first(open_store: OpenStore) -> None:
    store = open_store()
    fill(store, 900)
    assert store.index is not None
    assert len(store.index) > 1
    for number in (0, 17, 450, 899):
        topic = numbered(number).topic
        assert [m.flag for m in store.query(topic, f"key-{number}")] == [number]
        assert [m.flag for m in store.query(topic, f"{number:032X}")] == [number]
    group = [m.flag for m in store.query("orders", "group-3", count_max=1000)]
    assert group == [n for n in range(899, -1, -1) if n % 3 == 0 and n % 7 == 3]
    assert store.query("payments", "key-0") == []


def test_a_query_keeps_to_its_time_range(open_store: OpenStore) -> None:
    clock = ManualClock()
    store = open_store(clock=clock)
    start = clock.now_ms()
    for number in range(10):
        store.put(Message("t", 0, b"%d" % number, b"KEYS\x01same\x02"))
        clock.advance(700)
    found = store.query("t", "same", begin_ms=start + 1400, end_ms=start + 3500)
    assert [m.body for m in found] == [b"5", b"4", b"3", b"2"]


def test_offsets_by_time_have_a_lower_and_an_upper_bound(open_store: OpenStore) -> None:
    clock = ManualClock(1000)
    store = open_store(clock=clock)
    for time_ms in (1000, 1000, 1000, 3000, 3000):
        clock.current_ms = time_ms
        store.put(Message("t", 0, b"x"))

    def bounds(time_ms: int) -> tuple[int, int]:
        return (
            store.offset_by_time("t", 0, time_ms, Boundary.LOWER),
            store.offset_by_time("t", 0, time_ms, Boundary.UPPER),
        )

    assert bounds(1000) == (0, 2)
    assert bounds(2000) == (3, 2)
    assert bounds(3000) == (3, 4)
    assert bounds(9000) == (5, 4)
    assert bounds(500) == (0, 0)
    assert store.earliest_time("t", 0) == 1000
    assert store.earliest_time("t", 1) == -1


def test_store_times_never_run_backwards(open_store: OpenStore) -> None:
    clock = ManualClock(5000)
    store = open_store(clock=clock)
    times = []
    for now in (5000, 4000, 6000):
        clock.current_ms = now
        times.append(store.put(Message("t", 0, b"x")).store_timestamp)
    assert times == [5000, 5000, 6000]


def test_half_messages_are_kept_in_the_log_but_not_queued(open_store: OpenStore) -> None:
    store = open_store()
    half = store.put(Message("t", 0, b"half", sys_flag=flags.TRANSACTION_PREPARED))
    whole = store.put(Message("t", 0, b"whole", sys_flag=flags.TRANSACTION_COMMIT))
    assert (half.queue_offset, whole.queue_offset) == (0, 0)
    assert [m.body for m in served(store).values()] == [b"whole"]
    assert store.message_at(half.physical_offset) is not None


def test_nothing_is_readable_before_it_is_confirmed(open_store: OpenStore) -> None:
    store = open_store(confirm_appended=False)
    first = store.append(numbered(0))
    second = store.append(numbered(1))
    assert store.dispatch() == []
    store.confirm(first.end)
    store.dispatch()
    assert served_numbers(store) == [0]
    store.confirm(second.end)
    store.dispatch()
    assert served_numbers(store) == [0, 1]


def test_a_message_over_the_limit_is_refused_and_leaves_no_trace(open_store: OpenStore) -> None:
    store = open_store(message_bytes_max=1000)
    with pytest.raises(MessageTooLarge, match="1001 bytes, maxMessageSize is 1000"):
        store.append(Message("t", 0, b"x" * 1001))
    assert store.appended.value == 0
    store.put(Message("t", 0, b"x" * 1000))
    assert store.max_offset("t", 0) == 1


def test_a_message_larger_than_a_file_is_refused(open_store: OpenStore) -> None:
    store = open_store()
    with pytest.raises(MessageTooLarge, match="does not fit into a CommitLog file"):
        store.append(Message("t", 0, b"x" * 65_500))
    store.put(numbered(0))
    assert served_numbers(store) == [0]


@pytest.mark.parametrize("topic", ["", "a/b", "..", "a b", "x" * 128])
def test_a_topic_that_could_not_be_a_directory_is_refused(
    open_store: OpenStore, topic: str
) -> None:
    store = open_store()
    with pytest.raises(IllegalMessage):
        store.append(Message(topic, 0, b"x"))
    assert store.appended.value == 0


def test_a_deleted_topic_starts_anew(open_store: OpenStore) -> None:
    store = open_store()
    fill(store, 100)
    assert store.delete_topic("orders") == 4
    assert store.read("orders", 0, 0).status is ReadStatus.NO_MATCHED_LOGIC_QUEUE
    assert store.put(numbered(0)).queue_offset == 0
    assert store.read("orders", 0, 0).count == 1


def test_a_store_can_be_open_only_once(open_store: OpenStore) -> None:
    store = open_store()
    with pytest.raises(StoreLocked):
        MessageStore(small_config(store.config.root)).open()


def test_a_closed_store_takes_nothing(open_store: OpenStore) -> None:
    store = open_store()
    store.close()
    with pytest.raises(StoreClosed):
        store.append(numbered(0))


@pytest.mark.parametrize("count", [2, 32])
def test_slices_stay_valid_when_their_file_is_deleted(open_store: OpenStore, count: int) -> None:
    store = open_store(reserved_hours=0)
    fill(store, 600)
    piece = store.read("orders", 0, 0, count_max=count).slices[0]
    before = bytes(piece)
    assert store.clean() > 0
    assert store.min_offset("orders", 0) > 0
    assert bytes(piece) == before


def test_an_illegal_message_in_a_batch_leaves_those_before_it(open_store: OpenStore) -> None:
    """Their offsets are given and their records written: they must stay readable."""
    store = open_store()
    fill(store, 30)
    good, bad = numbered(30), Message("orders", 0, b"x", properties=b"k\x01" + b"v" * 40_000)
    with pytest.raises(IllegalMessage, match="properties"):
        store.append_all([good, numbered(31), bad, numbered(32)])
    fill(store, 10, first=32)
    assert served_numbers(store) == list(range(42))
    assert not store.read("orders", 0, 0, count_max=100).damaged


def test_a_negative_queue_is_refused(open_store: OpenStore) -> None:
    with pytest.raises(IllegalMessage, match="queue -1 of t"):
        open_store().append(Message("t", -1, b"x"))


class FewFiles(Disk):
    """A disk of a process that may have only so many files open."""

    def files_allowed(self) -> int:
        return 8


def test_a_new_queue_is_refused_when_files_run_out_and_others_go_on(tmp_path: Path) -> None:
    with MessageStore(small_config(tmp_path), disk=FewFiles()) as store:
        for queue_id in range(4):
            store.put(Message("orders", queue_id, b"first"))
        with pytest.raises(TooManyQueues, match="ulimit -n"):
            store.append(Message("orders", 4, b"one too many"))
        store.put(Message("orders", 3, b"second"))
        assert [store.max_offset("orders", queue_id) for queue_id in range(5)] == [1, 1, 1, 2, 0]
