"""Rows before they are sent: what becomes of them, where they go, and what is refused by name."""

import datetime as dt
import hashlib
import uuid
from collections.abc import Mapping
from typing import Any

import pyarrow as pa
import pytest

from cometmq.client.message import BODY_BYTES_MAX
from cometmq.client.selectors import by_hash
from cometmq.protocol.batch import decode_batch
from cometmq.protocol.message import Message
from cometmq.protocol.message_queue import MessageQueue
from cometmq.protocol.properties import decode_properties
from cometmq.spark.errors import BadOption, NotSent
from cometmq.spark.sink.columns import check_columns
from cometmq.spark.sink.ids import Ids, Origin, fixed_ids, fresh_ids, origin_in_job
from cometmq.spark.sink.options import Guarantee, SinkOptions, read_sink_options
from cometmq.spark.sink.parcels import Parcel, Parcels, batch_of
from cometmq.spark.sink.places import TURN_ROWS, Place, places
from cometmq.spark.sink.rows import rows_of

BASE = {"namesrvAddr": "127.0.0.1:9876", "topic": "t"}
QUEUES = tuple(MessageQueue("t", name, number) for name in ("a", "b") for number in range(3))
MAP = pa.map_(pa.string(), pa.string())
IDS = Ids(b"\x0a" * 12, 0xFFFFFFFE)
NO_UTF8 = pa.array([b"fine", b"no\xff"]).view(pa.string())
"""As Spark has it of `cast(body as string)`."""


def sink(**more: str) -> SinkOptions:
    return read_sink_options({**BASE, **more})


def batch(**columns: Any) -> pa.RecordBatch:
    """Columns by name; bodies if none are given."""
    if "body" not in columns:
        columns["body"] = [b"x"] * len(next(iter(columns.values())))
    arrays = {
        name: values if isinstance(values, pa.Array) else pa.array(values)
        for name, values in columns.items()
    }
    return pa.record_batch(arrays)


def parcels_of(
    rows: pa.RecordBatch, *, batch_bytes: int = 1 << 20, group: str = "", topic: str = "t"
) -> list[Parcel]:
    made = Parcels(batch_bytes=batch_bytes, is_free=False, half_of_group=group)
    ready = rows_of(rows, topic, 0, 0)
    (name,) = ready.topics
    place = Place(MessageQueue(name, "a", 0), places(ready, {name: QUEUES[:1]}, 0, 0)[0].rows)
    return [*made.made(place, batch_of(ready, IDS, 0, 5)), *made.rest(5)]


def messages(parcel: Parcel) -> list[tuple[bytes, dict[str, str]]]:
    content = parcel.content
    if not content.is_batch:
        return [(content.body, decode_properties(content.properties.encode()))]
    like = Message("t", 0, b"", b"")
    decoded = decode_batch(content.body, like)
    return [(one.body, decode_properties(one.properties)) for one in decoded]


# -- options and columns -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"topik": "x"}, "unknown option topik; did you mean topic?"),
        ({"startingOffsets": "x"}, "unknown option startingOffsets"),
        ({"deliveryGuarantee": "twice"}, "at-least-once, idempotent, transactional, not 'twice'"),
        ({"acknowledge": "no"}, "acknowledge is one of safe, stored"),
        ({"topic": "not a topic"}, "topic 'not a topic': only letters"),
        ({"maxBatchBytes": "5000000"}, "maxBatchBytes: 1024 to 4194304"),
        ({"sendTimeout": "30"}, "sendTimeout is a time with its unit"),
        ({"accessKey": "a"}, "accessKey and secretKey are set together"),
        ({"producerGroup": "a\x02b"}, r"producerGroup: group 'a\x02b': only letters"),
        ({"producerGroup": "g" * 121}, "producerGroup: a group's name has up to 120 characters"),
        ({"path": "/tmp/x"}, "path: messages go to a topic"),
        ({"namesrvAddr": ""}, "namesrvAddr is missing"),
    ],
)
def test_options_are_refused_by_name(given: Mapping[str, str], said: str) -> None:
    with pytest.raises(BadOption) as refused:
        sink(**given)
    assert said in str(refused.value)


def test_names_of_options_may_be_written_in_any_case() -> None:
    found = sink(DELIVERYguarantee="Idempotent", checkpointlocation="somewhere", sendTimeout="5s")
    assert (found.guarantee, found.send_timeout_s) == (Guarantee.IDEMPOTENT, 5.0)


@pytest.mark.parametrize(
    ("stated", "said"),
    [
        ({"body": "string", "tag": "string"}, "column tag cannot be written"),
        ({"tags": "string"}, "the column body is missing"),
        ({"body": "int"}, "column body is binary or string, not int"),
        ({"body": "binary", "queueId": "bigint"}, "column queueId is int, not bigint"),
        ({"body": "binary", "topic": "string"}, "the option topic and a column topic"),
        ({"body": "binary", "properties": "map<string,int>"}, "column properties is map<string,"),
    ],
)
def test_columns_are_refused_by_name(stated: Mapping[str, str], said: str) -> None:
    with pytest.raises(BadOption) as refused:
        check_columns(stated, sink())
    assert said in str(refused.value)


def test_without_the_option_a_column_says_the_topic() -> None:
    without = read_sink_options({"namesrvAddr": "127.0.0.1:9876"})
    check_columns({"body": "string", "topic": "string"}, without)
    with pytest.raises(BadOption, match="no topic: set the option topic, or have a column"):
        check_columns({"body": "string"}, without)


def test_a_message_in_a_transaction_cannot_be_delayed() -> None:
    with pytest.raises(BadOption, match="column deliverAt: a message in a transaction cannot be"):
        check_columns(
            {"body": "string", "deliverAt": "timestamp"}, sink(deliveryGuarantee="transactional")
        )


# -- messages ------------------------------------------------------------------------------------


def test_rows_of_one_queue_travel_together_with_all_that_they_say() -> None:
    rows = batch(
        body=["one", "two", "three"],
        tags=["red", None, ""],
        keys=[None, "k1 k2", "k3"],
        shardingKey=["s", "s", "s"],
        properties=pa.array([[("a", "1"), ("b", "2")], None, []], MAP),
    )
    (parcel,) = parcels_of(rows)
    common = {"__SHARDINGKEY": "s"}
    begin = "0A" * 12
    assert messages(parcel) == [
        (b"one", {"UNIQ_KEY": f"{begin}FFFFFFFE", "TAGS": "red", "a": "1", "b": "2", **common}),
        (b"two", {"UNIQ_KEY": f"{begin}FFFFFFFF", "KEYS": "k1 k2", **common}),
        (b"three", {"UNIQ_KEY": f"{begin}00000000", "KEYS": "k3", **common}),
    ]
    assert (parcel.first_row, parcel.rows, parcel.is_ordered) == (0, 3, True)
    assert parcel.content.properties == "WAIT\x01true\x02"


def test_a_slice_of_a_batch_is_read_where_it_begins() -> None:
    rows = batch(
        body=[b"%d" % number for number in range(10)],
        tags=[f"t{number}" for number in range(10)],
        properties=pa.array([[("n", str(number))] for number in range(10)], MAP),
    ).slice(6, 3)
    (parcel,) = parcels_of(rows)
    found = [(body, said["TAGS"], said["n"]) for body, said in messages(parcel)]
    assert found == [(b"6", "t6", "6"), (b"7", "t7", "7"), (b"8", "t8", "8")]


def test_large_batches_are_split_and_nothing_changes_its_order() -> None:
    bodies = [b"%d" % number * (1 + number % 700) for number in range(500)]
    bodies[250] = b"large" * 1000
    made = parcels_of(batch(body=bodies), batch_bytes=4096)
    assert [body for parcel in made for body, _ in messages(parcel)] == bodies
    assert all(len(parcel.content.body) <= 4096 for parcel in made if parcel.content.is_batch)
    assert [parcel.first_row for parcel in made if not parcel.content.is_batch] == [250]
    rows = 0
    for parcel in made:
        assert parcel.first_row == rows
        assert parcel.is_ordered
        rows += parcel.rows


def test_small_pieces_wait_for_more_of_their_queue() -> None:
    made = Parcels(batch_bytes=1 << 20, is_free=False)
    ready = rows_of(batch(body=[b"a", b"b"]), "t", 0, 0)
    place = places(ready, {"t": QUEUES[:1]}, 0, 0)[0]
    assert made.made(place, batch_of(ready, IDS, 0, 5)) == []
    assert made.made(place, batch_of(ready, IDS, 2, 5)) == []
    (parcel,) = made.rest(5)
    assert [body for body, _ in messages(parcel)] == [b"a", b"b", b"a", b"b"]
    assert (parcel.first_row, parcel.rows) == (0, 4)
    assert made.rest(5) == []


def test_delayed_rows_go_alone_and_need_no_order() -> None:
    at = dt.datetime(2030, 1, 2, 3, 4, 5, 678_901, tzinfo=dt.UTC)
    stamps = pa.array([None, None, at], pa.timestamp("us", tz="UTC"))
    levels = pa.array([0, 3, None], pa.int32())
    made = parcels_of(batch(body=["now", "level", "time"], delayLevel=levels, deliverAt=stamps))
    by_body = {body: (said, parcel) for parcel in made for body, said in messages(parcel)}
    assert "DELAY" not in by_body[b"now"][0]
    assert by_body[b"now"][1].content.is_batch
    level, time = by_body[b"level"], by_body[b"time"]
    assert (level[0]["DELAY"], time[0]["TIMER_DELIVER_MS"]) == ("3", "1893553445678")
    assert not level[1].content.is_batch
    assert not time[1].is_ordered


def test_half_messages_go_alone_and_name_their_group() -> None:
    made = parcels_of(batch(body=["a", "b"]), group="G")
    said = [said for parcel in made for _, said in messages(parcel)]
    assert [(one["TRAN_MSG"], one["PGROUP"]) for one in said] == [("true", "G")] * 2
    assert [parcel.unique_id for parcel in made] == [one["UNIQ_KEY"] for one in said]
    assert all(parcel.content.sys_flag == 4 for parcel in made)


def test_topics_for_retries_take_no_batches() -> None:
    made = parcels_of(batch(body=["a", "b"], topic=["%RETRY%g"] * 2))
    assert [parcel.content.is_batch for parcel in made] == [False, False]


@pytest.mark.parametrize(
    ("columns", "said"),
    [
        ({"body": ["x", None]}, "row 101 of partition 3: its body is null"),
        ({"body": [b"x", b""]}, "row 101 of partition 3: its body is empty"),
        ({"body": [b"x", b"x" * (BODY_BYTES_MAX + 1)]}, "row 101 of partition 3: its body has 419"),
        ({"tags": ["a", "b\x01"]}, "row 101 of partition 3: tags contains a byte that separates"),
        ({"keys": ["\x02", "b"]}, "row 100 of partition 3: keys contains"),
        ({"topic": ["t", None]}, "row 101 of partition 3: its topic is null"),
        ({"topic": ["t", "no topic"]}, "row 101 of partition 3: topic 'no topic'"),
        ({"queueId": pa.array([0, -1], pa.int32())}, "row 101 of partition 3: queueId -1"),
        ({"delayLevel": pa.array([18, 19], pa.int32())}, "row 101 of partition 3: delayLevel 19"),
        (
            {"properties": pa.array([[("a", "b")], [("c", "d"), ("TAGS", "x")]], MAP)},
            "row 101 of partition 3: properties: RocketMQ uses TAGS itself",
        ),
        (
            {"properties": pa.array([[("a", "b")], [("c", "")]], MAP)},
            "row 101 of partition 3: properties: c has no value",
        ),
        (
            {"properties": pa.array([[("a", "b")], [("c", None)]], MAP)},
            "row 101 of partition 3: properties: c has no value",
        ),
        (
            {"properties": pa.array([[("a", "b")], [("c", "\x02")]], MAP)},
            "row 101 of partition 3: properties: 'c' contains a byte",
        ),
        ({"tags": NO_UTF8}, "row 101 of partition 3: tags is no UTF-8: make_valid_utf8 makes"),
        ({"keys": NO_UTF8}, "row 101 of partition 3: keys is no UTF-8"),
        ({"shardingKey": NO_UTF8}, "row 101 of partition 3: shardingKey is no UTF-8"),
        ({"topic": NO_UTF8}, "row 101 of partition 3: topic is no UTF-8"),
        (
            {"properties": pa.MapArray.from_arrays([0, 1, 2], ["a", "b"], NO_UTF8)},
            "row 101 of partition 3: properties: a value is no UTF-8: make_valid_utf8 makes it so",
        ),
        (
            {"properties": pa.MapArray.from_arrays([0, 1, 2], NO_UTF8, ["a", "b"])},
            "row 101 of partition 3: properties: a name is no UTF-8",
        ),
        ({"tags": ["x" * 40_000, "y"]}, "row 100 of partition 3: its properties have 40006 bytes"),
    ],
)
def test_a_row_that_cannot_be_sent_is_named(columns: Mapping[str, Any], said: str) -> None:
    with pytest.raises(NotSent) as refused:
        rows_of(batch(**columns), "" if "topic" in columns else "t", 100, 3)
    assert said in str(refused.value)


def test_a_body_is_any_bytes() -> None:
    assert rows_of(batch(body=NO_UTF8), "t", 0, 0).bodies.of(1) == b"no\xff"


@pytest.mark.parametrize(
    "name", ["CHECK_IMMUNITY_TIME_IN_SECONDS", "TRANSACTION_CHECK_TIMES", "__transactionId__"]
)
def test_what_brokers_read_from_half_messages_is_not_for_rows_to_say(name: str) -> None:
    rows = batch(properties=pa.array([[("a", "b")], [(name, "1")]], MAP))
    with pytest.raises(NotSent, match=f"row 1 of partition 0: properties: RocketMQ uses {name}"):
        rows_of(rows, "t", 0, 0, are_halves=True)
    assert rows_of(rows, "t", 0, 0).number == 2


def test_a_row_with_two_times_is_refused() -> None:
    time = pa.array([None, dt.datetime.now(dt.UTC)], pa.timestamp("us", tz="UTC"))
    rows = batch(delayLevel=pa.array([1, 1], pa.int32()), deliverAt=time)
    with pytest.raises(NotSent, match="row 1 of partition 0: delayLevel and deliverAt are both"):
        rows_of(rows, "t", 0, 0)


# -- places --------------------------------------------------------------------------------------


def placed(rows: pa.RecordBatch, first_row: int = 0, partition: int = 0) -> dict[int, MessageQueue]:
    """The queue of every row."""
    found = places(rows_of(rows, "t", 0, 0), {"t": QUEUES}, first_row, partition)
    return {row: place.queue for place in found for row in place.rows.tolist()}


def test_queues_take_turns_and_partitions_begin_at_different_ones() -> None:
    rows = batch(body=[b"x"] * (TURN_ROWS * 3))
    found = placed(rows)
    assert [found[turn * TURN_ROWS] for turn in range(3)] == list(QUEUES[:3])
    assert found[TURN_ROWS - 1] == QUEUES[0]
    assert placed(rows, first_row=TURN_ROWS)[0] == QUEUES[1]
    assert placed(rows, partition=4)[0] == QUEUES[4]


def test_a_sharding_key_goes_where_the_client_would_send_it() -> None:
    keys = [f"customer {number}" for number in range(50)] + ["标签", "🚀", None, ""]
    found = placed(batch(shardingKey=keys))
    for row, key in enumerate(keys[:52]):
        assert found[row] == by_hash(QUEUES, None, key)
    assert (found[52], found[53]) == (QUEUES[0], QUEUES[0]), "none: by turns"


def test_rows_with_a_queue_go_there_whichever_broker_has_it() -> None:
    found = placed(batch(queueId=pa.array([2, None, 1], pa.int32()), shardingKey=["a", "a", "a"]))
    assert (found[0].queue_id, found[2].queue_id) == (2, 1)
    assert found[1] == by_hash(QUEUES, None, "a")
    many = placed(batch(queueId=pa.array([1] * (2 * TURN_ROWS), pa.int32())))
    assert {queue.broker_name for queue in many.values()} == {"a", "b"}


def test_a_queue_that_is_not_there_is_refused() -> None:
    with pytest.raises(NotSent, match="row 1: topic t has no queue 3; it has 3 a broker"):
        placed(batch(queueId=pa.array([0, 3], pa.int32())))


def test_rows_of_several_topics_are_parted_and_stay_in_order() -> None:
    rows = rows_of(batch(topic=["a", "b", "a", "b", "a"]), "", 0, 0)
    queues = {name: [MessageQueue(name, "x", 0)] for name in "ab"}
    found = {place.queue.topic: place.rows.tolist() for place in places(rows, queues, 0, 0)}
    assert found == {"a": [0, 2, 4], "b": [1, 3]}


# -- ids -----------------------------------------------------------------------------------------


def test_fixed_ids_go_on_where_the_batch_before_ended() -> None:
    origin = Origin("q", 7, 300)
    whole = fixed_ids(origin, 0, 100)
    assert fixed_ids(origin, 60, 40).text(5) == whole.text(65)


def test_what_ids_cannot_tell_apart_is_refused() -> None:
    with pytest.raises(NotSent, match=r"partition 3 has over 268435456 rows.*repartition"):
        fixed_ids(Origin("q", 0, 3), 2**28 - 5, 6)
    with pytest.raises(NotSent, match="ids cannot tell batch 0 with partition 1048576"):
        fixed_ids(Origin("q", 0, 1 << 20), 0, 1)


def test_fresh_ids_are_never_given_twice() -> None:
    first, second = fresh_ids(1000), fresh_ids(1000)
    texts = {ids.text(row) for ids in (first, second) for row in range(1000)}
    assert len(texts) == 2000
    assert not any(text.startswith(("00", "FF")) for text in texts)


def test_jobs_are_told_apart_by_more_than_the_hash_of_their_names(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Same:
        def __init__(self, *_: object, **__: object) -> None: ...

        def digest(self) -> bytes:
            return b"\0" * 5

    monkeypatch.setattr(hashlib, "blake2b", Same)
    jobs = [uuid.uuid4() for _ in range(100)]
    texts = {fixed_ids(origin_in_job(job, 0), 0, 1).text(0) for job in jobs}
    assert len(texts) == 100
    assert fixed_ids(origin_in_job(jobs[0], 0), 0, 1).text(0) in texts, "the same each time"
