"""Messages by key, by unique id, by tag, and by where they are."""

from pathlib import Path
from typing import Any

import pytest

from cometmq.broker import queries as queries_module
from cometmq.protocol.codes import ResponseCode
from cometmq.protocol.message_id import parse_offset_id
from cometmq.testing.clock import ManualClock

from .brokers import TOPIC, Client, bodies_in, bounded, context_of, messages_in, number, serving

FOREVER = {"beginTimestamp": 0, "endTimestamp": 2**60}


def asked(key: str, topic: str = TOPIC, count: int = 32, **changes: Any) -> dict[str, Any]:
    return {"topic": topic, "key": key, "maxNum": count, **FOREVER, **changes}


async def with_messages(client: Client, count: int = 3) -> None:
    for n in range(count):
        properties = {"KEYS": f"key-{n} shared", "UNIQ_KEY": f"7F{n:030X}", "TAGS": f"tag-{n}"}
        assert (await client.send(body=b"%d" % n, properties=properties)).code == 0


@pytest.mark.parametrize(
    ("key", "found"), [("key-1", [b"1"]), ("shared", [b"0", b"1", b"2"]), ("7F" + "0" * 30, [b"0"])]
)
@bounded
async def test_a_key_finds_its_messages_in_order(
    tmp_path: Path, key: str, found: list[bytes]
) -> None:
    async with serving(tmp_path) as broker:
        client = await Client.to(broker)
        await with_messages(client)
        answer = await client.ask(12, asked(key))
        assert (answer.code, bodies_in(answer)) == (0, found)
        store = context_of(broker).store
        assert number(answer, "indexLastUpdatePhyoffset") == store.appended.value
        assert number(answer, "indexLastUpdateTimestamp") == store.last_timestamp


@bounded
async def test_a_unique_id_is_found_however_few_are_asked_for(tmp_path: Path) -> None:
    async with serving(tmp_path) as broker:
        client = await Client.to(broker)
        await with_messages(client)
        unique = {"_UNIQUE_KEY_QUERY": "true"}
        answer = await client.ask(12, asked(f"7F{2:030X}", count=0, **unique))
        assert bodies_in(answer) == [b"2"]


@bounded
async def test_a_tag_finds_its_messages_if_asked_as_one(tmp_path: Path) -> None:
    async with serving(tmp_path) as broker:
        client = await Client.to(broker)
        await with_messages(client)
        assert bodies_in(await client.ask(12, asked("tag-1", indexType="T"))) == [b"1"]
        assert (await client.ask(12, asked("tag-1"))).code == ResponseCode.QUERY_NOT_FOUND


@bounded
async def test_what_is_not_there_is_not_found(tmp_path: Path) -> None:
    async with serving(tmp_path) as broker:
        client = await Client.to(broker)
        await with_messages(client)
        for fields in (
            asked("stranger"),
            asked("key-1", "other"),
            asked(""),
            asked("key-1 shared"),
        ):
            answer = await client.ask(12, fields)
            assert answer.code == ResponseCode.QUERY_NOT_FOUND
            assert answer.remark == "can not find message, maybe time range not correct"
            assert number(answer, "indexLastUpdatePhyoffset") > 0


@pytest.mark.parametrize(("first", "last", "found"), [(0, 0, [0]), (1, 2, [1, 2]), (3, 9, [])])
@bounded
async def test_a_time_span_narrows_the_search(
    tmp_path: Path, first: int, last: int, found: list[int]
) -> None:
    clock = ManualClock()
    began = clock.now_ms()
    async with serving(tmp_path, clock=clock) as broker:
        client = await Client.to(broker)
        for n in range(3):
            await client.send(body=b"%d" % n, properties={"KEYS": "shared"})
            clock.advance(1000)
        span: dict[str, Any] = {
            "beginTimestamp": began + first * 1000,
            "endTimestamp": began + last * 1000,
        }
        answer = await client.ask(12, asked("shared", **span))
        assert bodies_in(answer) == [b"%d" % n for n in found]


@pytest.mark.parametrize(("asked_for", "got"), [(5, 5), (1000, 64), (0, 1), (-5, 1)])
@bounded
async def test_a_search_gives_the_newest_up_to_a_limit(
    tmp_path: Path, asked_for: int, got: int
) -> None:
    async with serving(tmp_path) as broker:
        client = await Client.to(broker)
        await with_messages(client, 70)
        answer = await client.ask(12, asked("shared", count=asked_for))
        assert bodies_in(answer) == [b"%d" % n for n in range(70 - got, 70)]


@bounded
async def test_an_answer_holds_as_much_as_a_frame_may(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(queries_module, "ANSWER_BYTES_MAX", 5000)
    async with serving(tmp_path) as broker:
        client = await Client.to(broker)
        for size in (100, 8000, 100):
            await client.send(body=bytes(size), properties={"KEYS": "shared"})
        answer = await client.ask(12, asked("shared"))
        assert [len(body) for body in bodies_in(answer)] == [100, 100]
        await client.send(body=bytes(9000), properties={"KEYS": "shared"})
        answer = await client.ask(12, asked("shared"))
        assert [len(body) for body in bodies_in(answer)] == [9000]


@bounded
async def test_the_index_survives_a_restart(tmp_path: Path) -> None:
    async with serving(tmp_path) as broker:
        await with_messages(await Client.to(broker))
    async with serving(tmp_path) as broker:
        client = await Client.to(broker)
        assert bodies_in(await client.ask(12, asked("key-1"))) == [b"1"]


@bounded
async def test_without_an_index_nothing_is_found(tmp_path: Path) -> None:
    async with serving(tmp_path, messageIndexEnable=False) as broker:
        client = await Client.to(broker)
        await with_messages(client)
        assert (await client.ask(12, asked("key-1"))).code == ResponseCode.QUERY_NOT_FOUND


# -- by where they are ---------------------------------------------------------------------------


@bounded
async def test_an_id_shows_its_message(tmp_path: Path) -> None:
    async with serving(tmp_path) as broker:
        client = await Client.to(broker)
        sent = [await client.send(body=b"%d" % n) for n in range(3)]
        for n, answer in enumerate(sent):
            _, offset = parse_offset_id(answer.text_fields()["msgId"])
            (message,) = messages_in(await client.ask(33, {"offset": offset}))
            assert (message.body, message.physical_offset) == (b"%d" % n, offset)


@pytest.mark.parametrize("offset", [1, -1, 10**6, 2**62, -(2**62)])
@bounded
async def test_a_place_where_no_message_begins_shows_none(tmp_path: Path, offset: int) -> None:
    async with serving(tmp_path) as broker:
        client = await Client.to(broker)
        await client.send()
        answer = await client.ask(33, {"offset": offset})
        assert answer.code == ResponseCode.SYSTEM_ERROR
        assert answer.remark == f"can not find message by the offset, {offset}"
