"""Commands and frames: what real clients send is read, and nothing that comes can break out."""

import itertools
import json
import struct
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cometmq.protocol.codes import PROTOCOL_VERSION, Language
from cometmq.protocol.command import (
    FRAME_BYTES_MAX,
    Command,
    FrameParser,
    HeaderKind,
    MalformedFields,
    MalformedFrame,
    Request,
    Response,
    encode_request,
    encode_response,
)
from cometmq.protocol.errors import ProtocolError
from cometmq.protocol.record import iter_records

from . import captured_frames as captured

NESTING = 100_000
INT32_MAX = 2**31 - 1


class Pull(msgspec.Struct):
    topic: str
    queue_id: int = msgspec.field(name="queueId")
    suspend: bool = False
    commit_offset: int = msgspec.field(name="commitOffset", default=-1)


def frame(header: bytes, body: bytes = b"", kind: int = 0) -> bytes:
    word = kind << 24 | len(header)
    return struct.pack(">II", 4 + len(header) + len(body), word) + header + body


def json_frame(**head: Any) -> bytes:
    return frame(json.dumps(head).encode())


def binary_header(
    *,
    code: int = 11,
    language: int = 0,
    remark: bytes = b"",
    remark_size: int | None = None,
    fields: bytes = b"",
    fields_size: int | None = None,
) -> bytes:
    said = len(remark) if remark_size is None else remark_size
    sized = len(fields) if fields_size is None else fields_size
    head = struct.pack(">hBhiii", code, language, 513, 7, 0, said)
    return head + remark + struct.pack(">i", sized) + fields


def binary_field(name: bytes, value: bytes, value_size: int | None = None) -> bytes:
    sized = len(value) if value_size is None else value_size
    return struct.pack(">H", len(name)) + name + struct.pack(">i", sized) + value


def only(data: bytes) -> Command:
    (command,) = FrameParser().feed(data)
    return command


# -- what a real client and a real broker sent ---------------------------------------------------


@pytest.mark.parametrize(
    ("sent", "kind", "topic", "opaque"),
    [
        (captured.JSON_SEND, HeaderKind.JSON, "wiretest", 5),
        (captured.BINARY_SEND, HeaderKind.BINARY, "wiretest2", 4),
    ],
)
def test_a_real_send_is_read_in_both_kinds(
    sent: bytes, kind: HeaderKind, topic: str, opaque: int
) -> None:
    command = only(sent)

    assert (command.code, command.opaque, command.kind) == (310, opaque, kind)
    assert (command.language, command.version) == (Language.JAVA, 513)
    assert not command.is_response
    assert not command.is_oneway
    assert command.remark is None
    assert command.body == b"hello wire 0"
    fields = command.text_fields()
    assert fields["b"] == topic
    assert fields["i"].startswith("KEYS\x01key0\x02UNIQ_KEY\x01FD00")
    assert (fields["e"], fields["k"], fields["n"]) == ("0", "false", "broker-a")
    assert "l" not in fields


@pytest.mark.parametrize("sent", [captured.JSON_OFFSET_ONEWAY, captured.BINARY_OFFSET_ONEWAY])
def test_a_real_one_way_request_is_known_as_such(sent: bytes) -> None:
    command = only(sent)

    assert command.code == 15
    assert command.is_oneway
    assert not command.is_response
    assert command.fields(Pull).topic.startswith("wiretest")


def test_a_real_pull_is_read_as_typed_fields() -> None:
    pull = only(captured.BINARY_PULL).fields(Pull)

    assert (pull.topic, pull.queue_id, pull.commit_offset) == ("wiretest2", 0, 0)


@pytest.mark.parametrize("sent", [captured.JSON_HEARTBEAT, captured.BINARY_HEARTBEAT])
def test_a_real_heartbeat_has_no_fields_and_a_json_body(sent: bytes) -> None:
    command = only(sent)

    assert command.text_fields() == {}
    groups = json.loads(command.body)["producerDataSet"]
    assert groups == [{"groupName": "CLIENT_INNER_PRODUCER"}, {"groupName": "wire_pg"}]


def test_real_answers_are_read() -> None:
    found = only(captured.JSON_PULL_ANSWER)
    missing = only(captured.JSON_NO_ROUTE)

    assert found.is_response
    assert (found.code, found.opaque, found.remark) == (0, 43, "FOUND")
    assert found.text_fields()["nextBeginOffset"] == "1"
    assert [record.topic for record in iter_records(memoryview(found.body))] == ["wiretest"]
    assert (missing.code, missing.text_fields()) == (17, {})
    assert missing.remark is not None
    assert missing.remark.startswith("No topic route info")


def test_a_binary_header_is_written_as_java_writes_it() -> None:
    real = only(captured.BINARY_PULL)
    response = Response(real.code, None, real.text_fields(), real.body)

    ours = b"".join(encode_response(response, real.opaque, HeaderKind.BINARY))

    language, flag = slice(10, 11), slice(17, 21)
    assert ours[language] == bytes([Language.PYTHON])
    assert ours[flag] == b"\0\0\0\1"
    expected = bytearray(captured.BINARY_PULL)
    expected[language], expected[flag] = ours[language], ours[flag]
    assert ours == bytes(expected)


# -- frames in pieces ----------------------------------------------------------------------------


@pytest.mark.parametrize("sent", captured.ALL)
def test_a_frame_split_anywhere_is_the_same_command(sent: bytes) -> None:
    whole = only(sent)
    for cut in range(1, len(sent)):
        parser = FrameParser()
        assert parser.feed(sent[:cut]) == []
        assert parser.is_midway
        assert parser.feed(sent[cut:]) == [whole]
        assert not parser.is_midway


def test_frames_that_come_byte_by_byte_come_out_one_by_one() -> None:
    parser = FrameParser()
    stream = b"".join(captured.ALL)

    commands = [command for byte in stream for command in parser.feed(bytes([byte]))]

    assert commands == [only(sent) for sent in captured.ALL]
    assert not parser.is_midway


@given(st.data())
def test_frames_joined_and_cut_at_random_come_out_in_order(data: st.DataObject) -> None:
    sent = data.draw(st.lists(st.sampled_from(captured.ALL), min_size=1, max_size=12))
    stream = b"".join(sent)
    cuts = data.draw(st.lists(st.integers(0, len(stream)), max_size=8).map(sorted))
    parser = FrameParser()

    commands = []
    for start, end in itertools.pairwise([0, *cuts, len(stream)]):
        commands += parser.feed(stream[start:end])

    assert commands == [only(each) for each in sent]


@given(st.lists(st.sampled_from((1, 7, 500, 4095, 4096, 70_000)), max_size=40))
def test_a_large_frame_is_the_same_whatever_the_sizes_of_its_pieces(sizes: list[int]) -> None:
    body = bytes(range(256)) * 600
    stream = frame(b'{"code":1}', body) + captured.JSON_SEND
    parser, commands, at = FrameParser(), [], 0

    for size in [*sizes, len(stream)]:
        commands += parser.feed(stream[at : at + size])
        at = min(at + size, len(stream))
        if at == len(stream):
            break

    assert [command.body for command in commands] == [body, only(captured.JSON_SEND).body]
    assert not parser.is_midway


def test_what_came_complete_ahead_of_a_malformed_frame_is_not_lost() -> None:
    with pytest.raises(MalformedFrame) as caught:
        FrameParser().feed(captured.JSON_SEND + captured.BINARY_SEND + frame(b"not JSON"))

    assert caught.value.before == [only(captured.JSON_SEND), only(captured.BINARY_SEND)]


# -- fields --------------------------------------------------------------------------------------


def test_bare_numbers_booleans_and_nulls_are_read_as_their_text() -> None:
    """As ali-ons sends them."""
    command = only(
        json_frame(code=11, extFields={"topic": 42, "queueId": 3, "suspend": True, "x": None})
    )

    assert command.text_fields() == {"topic": "42", "queueId": "3", "suspend": "true"}
    assert command.fields(Pull) == Pull("42", 3, suspend=True)


def test_numbers_as_text_and_bare_make_the_same_fields() -> None:
    as_text = {"topic": "t", "queueId": "3", "suspend": "true", "commitOffset": "-5"}
    bare = {"topic": "t", "queueId": 3, "suspend": True, "commitOffset": -5}

    assert only(json_frame(code=11, extFields=as_text)).fields(Pull) == only(
        json_frame(code=11, extFields=bare)
    ).fields(Pull)


def test_a_null_leaves_a_field_at_its_default() -> None:
    fields = {"topic": "t", "queueId": "1", "commitOffset": None}

    assert only(json_frame(code=11, extFields=fields)).fields(Pull).commit_offset == -1


@pytest.mark.parametrize("head", [{}, {"extFields": None}, {"extFields": {}}, {"extFields": []}])
def test_fields_may_be_absent_null_or_empty(head: dict[str, Any]) -> None:
    command = only(json_frame(code=28, **head))

    assert command.text_fields() == {}
    with pytest.raises(MalformedFields, match=r"request 28: .*topic"):
        command.fields(Pull)


def test_text_in_every_script_survives() -> None:
    fields = {"topic": "主题-тема-🌠", "queueId": "0"}
    escaped = only(json_frame(code=11, remark="é\x01", extFields=fields))
    plain = only(frame(json.dumps({"code": 11, "extFields": fields}, ensure_ascii=False).encode()))

    assert escaped.fields(Pull).topic == plain.fields(Pull).topic == "主题-тема-🌠"
    assert escaped.remark == "é\x01"


def test_unknown_keys_of_header_and_fields_are_passed_over() -> None:
    fields = {"topic": "t", "queueId": "0", "ns": "space", "oway": {"deep": [1, None]}}
    command = only(json_frame(code=11, later={"a": [1, {}]}, extFields=fields))

    assert command.fields(Pull) == Pull("t", 0)
    assert command.text_fields()["oway"] == '{"deep":[1,null]}'


def test_an_unknown_language_is_other_in_both_kinds() -> None:
    assert only(json_frame(code=1, language="COBOL")).language is Language.OTHER
    assert only(json_frame(code=1, language=None)).language is Language.OTHER
    assert only(frame(binary_header(language=200), kind=1)).language is Language.OTHER
    assert only(frame(binary_header(language=9), kind=1)).language is Language.GO


def test_an_empty_text_of_a_binary_header_counts_as_absent() -> None:
    fields = binary_field(b"topic", b"t") + binary_field(b"subscription", b"")

    assert only(frame(binary_header(fields=fields), kind=1)).text_fields() == {"topic": "t"}


@pytest.mark.parametrize(
    "fields",
    [
        b'{"topic":"t","queueId":"many"}',
        b'{"topic":"t","queueId":1.5}',
        b'{"topic":"t","queueId":1e999}',
        b'{"topic":"t","queueId":%s}' % (b"9" * 5000),
        b'{"topic":"t","queueId":"%s"}' % (b"9" * 5000),
        b'{"topic":"t","queueId":0,"suspend":"maybe"}',
        b'{"queueId":0}',
        b'{"topic":"\xff\xfe","queueId":0}',
        b'"text"',
        b"12",
    ],
)
def test_fields_that_are_not_those_asked_for_are_refused_with_a_reason(fields: bytes) -> None:
    command = only(frame(b'{"code":11,"extFields":%s}' % fields))

    with pytest.raises(MalformedFields, match=r"request 11: .+"):
        command.fields(Pull)


@pytest.mark.parametrize("depth", [100, 900, 1000, 5000, NESTING])
def test_deeply_nested_fields_are_read_or_refused_at_any_depth(depth: int) -> None:
    nested = b"[" * depth + b"]" * depth
    sent = frame(b'{"code":11,"extFields":{"topic":"t","queueId":0,"x":%s}}' % nested)
    try:
        command = only(sent)
        assert command.fields(Pull).topic == "t"
        assert command.text_fields()["x"] == nested.decode()
    except (MalformedFrame, MalformedFields):
        assert depth > 100


# -- what is no frame ----------------------------------------------------------------------------


@pytest.mark.parametrize("size", [FRAME_BYTES_MAX + 1, 2**31 - 1, 2**31, 2**32 - 1])
def test_a_frame_over_the_limit_is_refused_by_its_length_alone(size: int) -> None:
    with pytest.raises(MalformedFrame, match=f"a frame of {size} bytes"):
        FrameParser().feed(struct.pack(">II", size, 10))


def test_a_frame_at_the_limit_is_taken_and_one_byte_more_is_not() -> None:
    header = b'{"code":1}'
    room = 64 - 4 - len(header)

    assert FrameParser(64).feed(frame(header, bytes(room)))[0].body == bytes(room)
    with pytest.raises(MalformedFrame):
        FrameParser(64).feed(frame(header, bytes(room + 1)))


@pytest.mark.parametrize("size", [0, 1, 3, 4, 13])
def test_a_header_longer_than_its_frame_is_refused(size: int) -> None:
    with pytest.raises(MalformedFrame, match="a header of 10"):
        FrameParser().feed(struct.pack(">II", size, 10) + b'{"code":1}')


@pytest.mark.parametrize("kind", [2, 3, 127, 255])
def test_a_header_of_unknown_kind_is_refused(kind: int) -> None:
    with pytest.raises(MalformedFrame, match=f"unknown kind {kind}"):
        only(frame(b'{"code":1}', kind=kind))


@pytest.mark.parametrize(
    "header",
    [
        b"",
        b"null",
        b"[]",
        b'"code"',
        b"{}",
        b'{"code":null}',
        b'{"code":true}',
        b'{"code":NaN}',
        b'{"code":Infinity}',
        b'{"code":1.5}',
        b'{"code":"one"}',
        b'{"code":2147483648}',
        b'{"code":"-2147483649"}',
        b'{"code":1,"opaque":2147483648}',
        b'{"code":1,"opaque":-2147483649}',
        b'{"code":1,"flag":4294967296}',
        b'{"code":1,"version":"new"}',
        b'{"code":1,"remark":{}}',
        b'{"code":1,"remark":"\xff"}',
        b'{"code":1,"remark":"\\ud800"}',
        b'{"code":1,"extFields":{"a":NaN}}',
        b'{"code":1,"extFields":{"a":"b"}',
        b'{"code":1,}',
        b'{"code":1} {"code":2}',
        b'\xef\xbb\xbf{"code":1}',
        b'{"code":1,"x":' + b"[" * NESTING + b"]" * NESTING + b"}",
        b'{"code":1,"x":' + b'{"a":' * NESTING,
        b"\0" * 64,
    ],
)
def test_a_json_header_that_is_none_is_refused(header: bytes) -> None:
    with pytest.raises(MalformedFrame, match="a JSON header"):
        only(frame(header))


@pytest.mark.parametrize(
    "header",
    [
        b"",
        b"\0" * 16,
        binary_header()[:-1],
        binary_header(remark_size=-1),
        binary_header(remark_size=1000),
        binary_header(remark=b"\xff\xfe"),
        binary_header(fields_size=-1),
        binary_header(fields_size=-(2**31)),
        binary_header(fields_size=INT32_MAX),
        binary_header(fields=binary_field(b"topic", b"t"), fields_size=5),
        binary_header(fields=binary_field(b"topic", b"t"), fields_size=11),
        binary_header(fields=binary_field(b"topic", b"t", -1)),
        binary_header(fields=binary_field(b"topic", b"t", INT32_MAX)),
        binary_header(fields=binary_field(b"\xff", b"t")),
        binary_header(fields=binary_field(b"topic", b"\xc3")),
        binary_header(fields=b"\xff\xff"),
        binary_header(fields=b"\0"),
    ],
)
def test_a_binary_header_that_is_none_is_refused(header: bytes) -> None:
    with pytest.raises(MalformedFrame, match="a binary header"):
        only(frame(header, kind=1))


@given(st.sampled_from(captured.ALL), st.data())
def test_a_frame_with_bytes_changed_is_read_or_refused(sent: bytes, data: st.DataObject) -> None:
    changed = bytearray(sent)
    for _ in range(data.draw(st.integers(1, 6))):
        changed[data.draw(st.integers(0, len(sent) - 1))] = data.draw(st.integers(0, 255))
    try:
        for command in FrameParser().feed(bytes(changed)):
            command.text_fields()
            command.fields(Pull)
    except (MalformedFrame, MalformedFields):
        pass


@given(st.binary(max_size=400), st.sampled_from([0, 1]))
def test_any_bytes_as_a_header_are_read_or_refused(header: bytes, kind: int) -> None:
    try:
        command = only(frame(header, kind=kind))
        command.text_fields()
        command.fields(Pull)
    except (MalformedFrame, MalformedFields):
        pass


@given(st.binary(max_size=400))
def test_any_bytes_at_all_are_kept_read_or_refused(data: bytes) -> None:
    parser = FrameParser(256)
    try:
        parser.feed(data)
        assert sum(map(len, parser._kept)) < 4 + 256
    except MalformedFrame:
        assert not parser.is_midway


# -- what we send --------------------------------------------------------------------------------

TEXT = st.text(max_size=40)
FIELDS = st.dictionaries(st.text(min_size=1, max_size=12), TEXT, max_size=8)
BODY = st.one_of(st.binary(max_size=64), st.lists(st.binary(max_size=16), max_size=4))


@given(
    code=st.integers(-(2**15), 2**15 - 1),
    opaque=st.integers(-(2**31), INT32_MAX),
    remark=st.none() | TEXT,
    fields=FIELDS,
    body=BODY,
    kind=st.sampled_from(HeaderKind),
)
def test_a_response_comes_back_as_it_was_sent(
    code: int,
    opaque: int,
    remark: str | None,
    fields: dict[str, str],
    body: bytes | list[bytes],
    kind: HeaderKind,
) -> None:
    pieces = encode_response(Response(code, remark, fields, body), opaque, kind)
    command = only(b"".join(pieces))

    assert (command.code, command.opaque, command.kind) == (code, opaque, kind)
    assert command.is_response
    assert not command.is_oneway
    assert (command.language, command.version) == (Language.PYTHON, PROTOCOL_VERSION)
    assert command.body == b"".join([body] if isinstance(body, bytes) else body)
    if kind is HeaderKind.JSON:
        assert (command.remark, command.text_fields()) == (remark, fields)
    else:
        assert command.remark == (remark or None)
        assert command.text_fields() == {name: text for name, text in fields.items() if text}


@given(code=st.integers(0, INT32_MAX), oneway=st.booleans(), fields=FIELDS, body=BODY)
def test_a_request_comes_back_as_it_was_sent(
    code: int, oneway: bool, fields: dict[str, str], body: bytes | list[bytes]
) -> None:
    command = only(b"".join(encode_request(Request(code, fields, body), 9, oneway=oneway)))

    assert (command.code, command.opaque, command.is_oneway) == (code, 9, oneway)
    assert not command.is_response
    assert command.text_fields() == fields
    assert command.body == b"".join([body] if isinstance(body, bytes) else body)


def test_json_headers_are_compact_and_their_values_are_text() -> None:
    """Go reads extFields as a map of strings, and finds its way by exact characters."""
    sent = b"".join(encode_response(Response(0, None, {"queueId": "1"}), 3, HeaderKind.JSON))

    assert b'"extFields":{"queueId":"1"}' in sent
    assert b" " not in sent[8:]
    assert b"remark" not in sent


def test_pieces_of_a_body_are_not_joined_before_they_are_written() -> None:
    records = [memoryview(b"one"), memoryview(b"two")]

    pieces = encode_response(Response(0, "FOUND", {}, records), 1, HeaderKind.JSON)

    assert pieces[1:] == records
    assert pieces[1] is records[0]


@pytest.mark.parametrize(("code", "cut"), [(200_050, 3442), (65_535, -1), (32_768, -32_768)])
def test_a_code_too_large_for_the_binary_header_is_cut_as_rocketmq_cuts_it(
    code: int, cut: int
) -> None:
    assert only(b"".join(encode_response(Response(code), 1, HeaderKind.BINARY))).code == cut


@pytest.mark.parametrize("kind", HeaderKind)
def test_a_header_too_long_for_its_24_bits_is_never_written(kind: HeaderKind) -> None:
    with pytest.raises(ProtocolError, match="a header of"):
        encode_response(Response(0, "x" * 2**24), 1, kind)
