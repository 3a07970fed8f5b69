"""Bodies with queues as keys, as fastjson writes them, and what only looks like one."""

import time

import msgspec
import pytest

from cometmq.protocol.fastjson import MalformedBody
from cometmq.protocol.message_queue import (
    QUEUE_MAPS_BYTES_MAX,
    MessageQueue,
    by_queue,
    decode_queue_maps,
    encode_body,
)


class Ends(msgspec.Struct, rename="camel"):
    min_offset: int
    max_offset: int


class Stats(msgspec.Struct, rename="camel"):
    offset_table: dict[str, Ends] = {}
    notes: list[dict[str, str]] = []
    rate: float = 0.0


def read(body: bytes) -> Stats:
    return decode_queue_maps(body, Stats, "stats")


def test_a_map_by_queue_is_read_as_fastjson_writes_it() -> None:
    stats = read(
        b'{"offsetTable":{{"brokerName":"b-1","queueId":0,"topic":"orders"}:'
        b'{"maxOffset":7,"minOffset":2},{"brokerName":"b-1","queueId":1,"topic":"orders"} : '
        b'{"maxOffset":9,"minOffset":0}},"rate":1.5}'
    )
    assert by_queue(stats.offset_table) == {
        MessageQueue("orders", "b-1", 0): Ends(2, 7),
        MessageQueue("orders", "b-1", 1): Ends(0, 9),
    }
    assert stats.rate == 1.5


def test_what_we_write_is_read_back() -> None:
    table = {MessageQueue("%RETRY%g", "b", number): Ends(0, number) for number in range(3)}
    assert by_queue(read(encode_body({"offsetTable": table, "rate": 0.0})).offset_table) == table


def test_an_empty_map_and_standard_json_are_read_too() -> None:
    assert read(b'{"offsetTable":{}}').offset_table == {}
    assert read(b'{"notes":[{"a":"b"},{"c":"d"}]}').notes == [{"a": "b"}, {"c": "d"}]


@pytest.mark.parametrize(
    "text", ["x}:y", '{"a":1}:2', ',{"t":1}:', "{{}:", 'quote \\"},{"a"}:'], ids=range(5)
)
def test_texts_are_left_as_they_are(text: str) -> None:
    encoded = msgspec.json.encode({"notes": [{"a": "b"}, {"said": text}, {text: "c"}]})
    assert read(encoded).notes == [{"a": "b"}, {"said": text}, {text: "c"}]


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b'{"offsetTable":{{"a":1}}}',
        b'{"offsetTable":{{"a":1}:{}}}',
        b'{"offsetTable":{{',
    ],
    ids=["empty", "cut", "no-value", "no-ends", "open-key"],
)
def test_a_body_that_is_something_else_says_what_is_wrong(body: bytes) -> None:
    with pytest.raises(MalformedBody, match="the stats cannot be read"):
        read(body)


def test_a_key_that_is_no_queue_is_said_so() -> None:
    with pytest.raises(MalformedBody, match="a map by queue has another key"):
        by_queue({'{"topic":"orders"}': 1})


@pytest.mark.parametrize(
    "piece", [b"{", b",{", b',{"', b'{{"a":1,', b',{"a"', b",{}", b'\\",{\\"'], ids=range(7)
)
def test_a_hostile_body_is_looked_at_once(piece: bytes) -> None:
    body = b'{"offsetTable":{{"' + piece * 300_000
    started = time.monotonic()
    with pytest.raises(MalformedBody):
        read(body)
    assert time.monotonic() - started < 5.0  # quadratic, it would take hours


def test_a_body_over_the_limit_is_not_even_tried() -> None:
    with pytest.raises(MalformedBody, match="bytes are too many"):
        read(b" " * (QUEUE_MAPS_BYTES_MAX + 1))
