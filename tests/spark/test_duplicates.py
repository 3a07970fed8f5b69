"""Messages that the sink had to send again: what the source leaves out, and what it never does."""

import itertools
import random
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import pyarrow as pa
import pytest

from cometmq.client.blocking import Admin
from cometmq.spark.errors import BadOption
from cometmq.spark.sink.ids import Origin, fixed_ids
from cometmq.spark.sink.writers import Plan, write_rows
from cometmq.spark.topic import ahead, ranges
from cometmq.spark.topic.duplicates import Duplicates, Earlier, Piece
from cometmq.spark.topic.offsets import QueueRange
from cometmq.spark.topic.options import read_options
from cometmq.spark.topic.ranges import read_range
from cometmq.testing import BlockingEmbeddedBroker

from .sending import options

FOREIGN = "C00002025606017C682B50A800000003"


def ids(query: str, batch: int, rows: range, partition: int = 0) -> list[str]:
    made = fixed_ids(Origin(query, batch, partition), 0, 1000)
    return [made.text(row) for row in rows]


def piece(texts: list[str], content: int = 0) -> Piece:
    """Messages that all have the same body, known by its check sum."""
    return Piece(texts, [content] * len(texts))


def left(*pieces: list[str], kept_max: int = 1000) -> list[str]:
    """What is left of a queue that is read in these pieces by one reader."""
    duplicates, kept = Duplicates(kept_max), []
    for texts in pieces:
        repeated = set(duplicates.repeated(piece(texts)))
        kept += [text for number, text in enumerate(texts) if number not in repeated]
    return kept


def test_an_id_that_stands_earlier_in_the_queue_is_left_out() -> None:
    first = ids("q", 1, range(10))
    assert left(first, ids("q", 1, range(20))) == ids("q", 1, range(20))
    assert left(first + first) == first
    other_partition = ids("q", 1, range(10), partition=7)
    assert left(first, other_partition) == first + other_partition


def test_ids_that_others_made_are_never_left_out() -> None:
    assert left([FOREIGN, FOREIGN], [FOREIGN]) == [FOREIGN] * 3
    mixed = [FOREIGN, *ids("q", 0, range(2)), FOREIGN, *ids("q", 0, range(2))]
    assert left(mixed) == [FOREIGN, *ids("q", 0, range(2)), FOREIGN]


def test_delayed_rows_are_never_left_out_since_they_come_when_their_time_has_come() -> None:
    delayed = fixed_ids(Origin("q", 0, 0), 0, 10).of_delayed.text(5)
    assert left([delayed, delayed]) == [delayed, delayed]


def test_the_two_newest_batches_of_a_query_are_remembered() -> None:
    """A task that Spark gave up may send on while the next batch is written."""
    old, new, newest = (ids("q", batch, range(3)) for batch in (1, 2, 3))
    assert left(old, new, new) == old + new
    assert left(old, new, old, new) == old + new
    assert left(old, new, newest, new, old) == old + new + newest + old, (
        "too late to be known, so it stays"
    )
    other = ids("other", 1, range(3))
    assert left(old, other, old, other) == old + other


def test_of_a_long_batch_the_last_ids_are_remembered() -> None:
    """A batch write has one batch, however many rows it has."""
    pieces = [ids("job", 0, range(at, at + 10)) for at in range(0, 100, 10)]
    all_pieces = list(itertools.chain(*pieces))
    assert left(*pieces, pieces[-1], pieces[-2], kept_max=20) == all_pieces
    assert left(*pieces, pieces[0], kept_max=20) == [*all_pieces, *pieces[0]]
    jobs = [ids(f"job {number}", 0, range(10)) for number in range(10)]
    all_jobs = list(itertools.chain(*jobs))
    assert left(*jobs, jobs[-1], jobs[-2], kept_max=20) == all_jobs
    assert left(*jobs, jobs[0], kept_max=20) == [*all_jobs, *jobs[0]]


def test_a_batch_of_which_room_was_made_is_remembered_from_then_on() -> None:
    first, other = ids("q", 1, range(2)), ids("r", 1, range(2))
    again = ids("q", 1, range(2, 3))
    assert left(first, other, again, again, kept_max=2) == [*first, *other, *again]


def test_another_body_under_the_same_id_is_kept_with_one_warning(
    caplog: pytest.LogCaptureFixture,
) -> None:
    texts, duplicates = ids("q", 1, range(2)), Duplicates(1000)
    assert duplicates.repeated(Piece(texts, [1, 2])) == []
    assert duplicates.repeated(Piece(texts, [2, 1])) == [], "another order the second time"
    assert duplicates.repeated(Piece(texts, [1, 1])) == [0, 1]
    assert duplicates.repeated(Piece(texts, [2, 3])) == [0]
    (warning,) = caplog.messages
    assert "but not the same body and properties: both are read" in warning


def test_queries_batches_and_partitions_give_different_ids() -> None:
    made = {
        fixed_ids(Origin(query, batch, partition), row, 1).text(0)
        for query, batch, partition, row in itertools.product(
            ("a", "b"), (0, 1, 2**32 - 1), (0, 1, 15, 16, 2**20 - 1), (0, 1, 2**28 - 1)
        )
    }
    assert len(made) == 2 * 3 * 5 * 3
    assert {len(text) for text in made} == {32}


@pytest.mark.parametrize("late_rows", [0, 2])
@pytest.mark.parametrize("seed", range(20))
def test_where_a_queue_is_cut_into_ranges_makes_no_difference(seed: int, late_rows: int) -> None:
    rng = random.Random(seed)
    queue, before = list[str](), list[str]()
    for batch in range(6):
        rows = ids("q", batch, range(rng.randrange(1, 8)))
        for _ in range(rng.randrange(1, 4)):
            queue += rows[: rng.randrange(1, len(rows) + 1)] + [FOREIGN] * rng.randrange(2)
            queue += before[:late_rows]
        queue += rows
        before = rows
    cuts = sorted(rng.sample(range(1, len(queue)), 3))
    kept: list[str] = []
    for start, end in itertools.pairwise([0, *cuts, len(queue)]):
        duplicates, texts = Duplicates(1000), queue[start:end]
        earlier, at = Earlier(duplicates.unknown(piece(texts))), start
        while at and not earlier.is_complete:
            earlier.add(piece(queue[max(0, at - 2) : at]))
            at = max(0, at - 2)
        duplicates.before(earlier)
        repeated = set(duplicates.repeated(piece(texts)))
        kept += [text for number, text in enumerate(texts) if number not in repeated]
    assert kept == left(queue)
    assert len({*kept} - {FOREIGN}) == len([text for text in kept if text != FOREIGN])


def test_a_late_row_of_the_batch_before_does_not_end_the_search_behind_it() -> None:
    """A task that Spark gave up has sent it among rows of the next batch."""
    oldest, old, rows = ids("q", 5, range(1)), ids("q", 6, range(3)), ids("q", 7, range(3))
    duplicates = Duplicates(1000)
    earlier = Earlier(duplicates.unknown(piece(rows)))
    for texts in (old[2:], rows, old):
        earlier.add(piece(texts))
        assert not earlier.is_complete
    earlier.add(piece(oldest))
    assert earlier.is_complete
    duplicates.before(earlier)
    assert duplicates.repeated(piece(rows)) == [0, 1, 2]
    assert duplicates.repeated(piece(old)) == [0, 1, 2], "more late ones, later in the range"


# -- with a broker -------------------------------------------------------------------------------


def attempt(
    broker: BlockingEmbeddedBroker,
    topic: str,
    batch: int,
    rows: Iterable[int],
    query: str = "query",
) -> None:
    bodies = pa.array([b"%d of %d" % (row, batch) for row in rows])
    write(broker, topic, pa.record_batch({"body": bodies}), Origin(query, batch, 0))


def write(broker: BlockingEmbeddedBroker, topic: str, rows: pa.RecordBatch, origin: Origin) -> None:
    """What a task of the sink does, as far as it gets."""
    given = options(broker, topic=topic, deliveryGuarantee="idempotent")
    write_rows(given, origin, rows.schema.names, Plan({}, {}), iter([rows]))


def read(broker: BlockingEmbeddedBroker, topic: str, part: tuple[int, int]) -> Iterator[str]:
    given = options(broker, topic=topic, dropDuplicates=True)
    with Admin(broker.namesrv) as admin:
        (queue,) = admin.topics.stats(topic).queues
    chosen = read_options(given, streaming=False)
    for batch in read_range(chosen, QueueRange(queue, *part), ("body",)):
        assert batch.schema.names == ["body"]
        yield from (body.as_py().decode() for body in batch.column(0))


def test_a_reader_looks_back_over_the_border_of_its_range(
    broker: BlockingEmbeddedBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ranges, "LOOK_BACK_FIRST", 8)
    broker.create_topic("sent-again", 1)
    attempt(broker, "sent-again", 0, range(30))
    attempt(broker, "sent-again", 1, range(25))  # It died here,
    attempt(broker, "sent-again", 1, range(40))  # and began anew.
    expected = [f"{row} of 0" for row in range(30)] + [f"{row} of 1" for row in range(40)]
    assert list(read(broker, "sent-again", (0, 95))) == expected
    for cut in (1, 29, 30, 31, 54, 55, 56, 70, 94):
        found = [*read(broker, "sent-again", (0, cut)), *read(broker, "sent-again", (cut, 95))]
        assert found == expected, cut


@pytest.mark.parametrize("cut", [0, 1, 5])
def test_rows_in_another_order_the_second_time_are_all_read(
    broker: BlockingEmbeddedBroker, cut: int
) -> None:
    """As behind a shuffle: the first attempt died behind 0, the second began with 1."""
    topic = f"other-order-{cut}"
    broker.create_topic(topic, 1)
    attempt(broker, topic, 0, [0, 1, 2, 3])
    attempt(broker, topic, 0, [1, 0, 4, 3])
    parts = [(0, cut), (cut, 8)] if cut else [(0, 8)]
    found = [body for part in parts for body in read(broker, topic, part)]
    assert sorted(found) == sorted(f"{row} of 0" for row in (0, 0, 1, 1, 2, 3, 4))


@pytest.mark.parametrize("cut", [0, 1, 3])
@pytest.mark.parametrize("column", ["keys", "properties"])
def test_equal_bodies_do_not_make_two_rows_one(
    broker: BlockingEmbeddedBroker, column: str, cut: int
) -> None:
    """Behind a shuffle: the first attempt died behind its third row, the second had them turned."""
    topic = f"equal-{column}-{cut}"
    broker.create_topic(topic, 1)
    of_column: dict[str, Callable[[str], Any]] = {
        "keys": str, "properties": lambda word: [("word", word)],
    }  # fmt: skip
    kind = pa.string() if column == "keys" else pa.map_(pa.string(), pa.string())
    for order in ("abc", "bac"):
        values = pa.array([of_column[column](word) for word in order], kind)
        rows = pa.record_batch({"body": pa.array([b"same"] * 3), column: values})
        write(broker, topic, rows, Origin("query", 0, 0))
    parts = [(0, cut), (cut, 6)] if cut else [(0, 6)]
    assert sum(len(list(read(broker, topic, part))) for part in parts) == 5, "but c comes once"


def test_one_look_back_is_enough_for_jobs_that_begin_later(
    broker: BlockingEmbeddedBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ranges, "ROWS_MAX", 10)
    monkeypatch.setattr(ahead, "MESSAGES_MAX", 10)
    monkeypatch.setattr(ranges, "LOOK_BACK_FIRST", 8)
    broker.create_topic("jobs", 1)
    for number in range(8):
        attempt(broker, "jobs", 0, range(10 * number, 10 * number + 10), f"job {number}")
    looked = list[tuple[int, int]]()
    pieces = ranges.RangeReading.pieces

    async def noted(reading: ranges.RangeReading) -> list[Piece]:
        looked.append((reading._part.start, reading._part.end))
        return await pieces(reading)

    monkeypatch.setattr(ranges.RangeReading, "pieces", noted)
    assert list(read(broker, "jobs", (25, 80))) == [f"{row} of 0" for row in range(25, 80)]
    assert looked == [(17, 25), (1, 17), (0, 1)]


def test_looking_back_has_a_bound(broker: BlockingEmbeddedBroker) -> None:
    broker.create_topic("far-away", 1)
    attempt(broker, "far-away", 0, range(10))
    attempt(broker, "far-away", 0, range(10))
    given = options(broker, topic="far-away", dropDuplicates=True, dropDuplicatesLookback=4)
    with Admin(broker.namesrv) as admin:
        (queue,) = admin.topics.stats("far-away").queues
    chosen = read_options(given, streaming=False)
    batches = read_range(chosen, QueueRange(queue, 10, 20), ("body",))
    found = [body.as_py() for batch in batches for body in batch.column(0)]
    assert found == [b"%d of 0" % row for row in range(6)], "6 to 9 stand up to 4 before"


def test_a_bound_without_the_wish_is_refused() -> None:
    given = {"namesrvAddr": "127.0.0.1:1", "topic": "t", "dropDuplicatesLookback": "5"}
    with pytest.raises(BadOption, match="dropDuplicatesLookback is set, but dropDuplicates is not"):
        read_options(given, streaming=False)
