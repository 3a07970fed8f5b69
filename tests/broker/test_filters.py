"""Filters by properties."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from cometmq.broker import filters
from tests.broker.brokers import (
    GROUP,
    SUBSCRIPTION,
    SUSPEND,
    TOPIC,
    Client,
    bodies_in,
    bounded,
    number,
    serving,
)

ON = {"enablePropertyFilter": True}


def sql(expression: str) -> dict[str, Any]:
    return {"subscription": expression, "expressionType": "SQL92"}


async def send_numbers(client: Client, count: int) -> None:
    for n in range(count):
        await client.send(
            body=b"%d" % n, properties={"size": str(n), "city": "Köln" if n % 2 else "Ulm"}
        )


@bounded
async def test_only_messages_whose_properties_match_are_handed_out(tmp_path: Path) -> None:
    async with serving(tmp_path, **ON) as broker:
        client = await Client.to(broker)
        await send_numbers(client, 20)
        answer = await client.pull(**sql("size >= 5 AND size < 12 AND city = 'Köln'"))
        assert bodies_in(answer) == [b"5", b"7", b"9", b"11"]
        assert number(answer, "nextBeginOffset") == 20


@bounded
async def test_a_pull_takes_no_more_than_it_asked_for_and_goes_on_behind_it(tmp_path: Path) -> None:
    async with serving(tmp_path, **ON) as broker:
        client = await Client.to(broker)
        await send_numbers(client, 20)
        found, offset = [], 0
        while True:
            answer = await client.pull(offset=offset, maxMsgNums=3, **sql("city = 'Ulm'"))
            if answer.code:
                break
            assert len(bodies_in(answer)) <= 3
            found += bodies_in(answer)
            offset = number(answer, "nextBeginOffset")
        assert found == [b"%d" % n for n in range(0, 20, 2)]


@bounded
async def test_what_matches_nothing_is_passed_over_in_bounded_steps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(filters, "SCANNED_MAX", 8)
    monkeypatch.setattr(filters, "STEP_COUNT", 4)
    async with serving(tmp_path, **ON) as broker:
        client = await Client.to(broker)
        await send_numbers(client, 20)
        answer = await client.pull(**sql("size > 100"))
        assert (answer.code, number(answer, "nextBeginOffset")) == (20, 8)
        answer = await client.pull(offset=20, **sql("size > 100"))
        assert answer.code == 19


@bounded
async def test_a_waiting_pull_is_woken_by_a_match_and_by_nothing_else(tmp_path: Path) -> None:
    async with serving(tmp_path, **ON) as broker:
        client, other = await Client.to(broker), await Client.to(broker)
        await client.send(body=b"first")
        waiting = asyncio.create_task(
            client.pull(
                offset=1, flag=SUBSCRIPTION | SUSPEND, suspendTimeoutMillis=20_000,
                **sql("size = 7"),
            )
        )  # fmt: skip
        await asyncio.sleep(0.05)
        await send_numbers(other, 7)
        assert not waiting.done()
        await send_numbers(other, 8)
        assert bodies_in(await waiting) == [b"7"]


@bounded
async def test_a_filter_from_the_heartbeat_counts_as_one_in_the_request(tmp_path: Path) -> None:
    async with serving(tmp_path, **ON) as broker:
        client = await Client.to(broker)
        await send_numbers(client, 6)
        subscription = {
            "topic": TOPIC, "subString": "size BETWEEN 2 AND 3", "expressionType": "SQL92",
            "subVersion": 1, "tagsSet": [], "codeSet": [],
        }  # fmt: skip
        consumer = {"groupName": GROUP, "subscriptionDataSet": [subscription]}
        await client.ask(34, {}, {"clientID": "c1", "consumerDataSet": [consumer]})
        assert bodies_in(await client.pull(flag=0)) == [b"2", b"3"]


@bounded
async def test_a_wrong_expression_is_refused_with_its_place(tmp_path: Path) -> None:
    async with serving(tmp_path, **ON) as broker:
        client = await Client.to(broker)
        await client.send()
        answer = await client.pull(**sql("size >>> 3"))
        assert answer.code == 23
        assert "character" in (answer.remark or "")
        asked = {"topic": TOPIC, "subString": "size >>> 3", "expressionType": "SQL92"}
        answer = await client.ask(
            46, {}, {"clientId": "c", "group": GROUP, "subscriptionData": asked}
        )
        assert answer.code == 23


@bounded
async def test_filters_are_off_unless_switched_on(tmp_path: Path) -> None:
    async with serving(tmp_path) as broker:
        client = await Client.to(broker)
        await client.send()
        answer = await client.pull(**sql("size = 1"))
        assert answer.code == 1
        assert "enablePropertyFilter" in (answer.remark or "")
