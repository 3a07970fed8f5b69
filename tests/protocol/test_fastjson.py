"""JSON of RocketMQ's Java side, and what only looks like it."""

import time

import msgspec
import pytest

from cometmq.protocol.fastjson import (
    BARE_KEYS_BYTES_MAX,
    MalformedBody,
    decode_body,
    parse_json,
)


class Offsets(msgspec.Struct):
    table: dict[int, int]


def test_bare_numbers_as_keys_are_read_into_a_structure() -> None:
    assert decode_body(b'{"table":{0:5,-1:6, 7 :8}}', Offsets, "table").table == {0: 5, -1: 6, 7: 8}


def test_standard_json_gives_the_same() -> None:
    assert decode_body(b'{"table":{"0":5}}', Offsets, "table").table == {0: 5}


@pytest.mark.parametrize(
    "body",
    [b"", b"{", b"[]", b'{"table":{"x":1}}', b'{"table":3}', b"\xff\xfe", b"[" * 100_000, b'{"a'],
    ids=["empty", "cut", "list", "key", "number", "no-utf8", "deep", "open-text"],
)
def test_a_body_that_is_something_else_says_what_is_wrong(body: bytes) -> None:
    with pytest.raises(MalformedBody, match="the table of offsets cannot be read"):
        decode_body(body, Offsets, "table of offsets")


def test_a_text_without_end_is_looked_at_once() -> None:
    body = b'{"' + b'\\"' * 500_000
    started = time.monotonic()
    with pytest.raises(msgspec.DecodeError):
        parse_json(body)
    assert time.monotonic() - started < 5.0  # quadratic, it would take hours


def test_a_large_body_is_read_only_if_it_is_standard_json() -> None:
    padding = b" " * BARE_KEYS_BYTES_MAX
    assert decode_body(b'{"table":{"0":5}}' + padding, Offsets, "table").table == {0: 5}
    with pytest.raises(MalformedBody, match="the table cannot be read"):
        decode_body(b'{"table":{0:5}}' + padding, Offsets, "table")
