"""Messages that are taken back before their time: never delivered, over restarts and crashes."""

import asyncio
import base64
from pathlib import Path
from typing import Any

import pytest

from cometmq.broker.inbox import Settled
from cometmq.broker.timers import timers as timers_module
from cometmq.broker.timers.handle import RecallHandle
from cometmq.protocol.codes import ResponseCode
from cometmq.protocol.command import Command
from cometmq.protocol.message import Appended, Message
from cometmq.testing.clock import ManualClock

from .brokers import TOPIC, Client, HeldDisk, bounded, serving, until
from .timing import (
    HOUR_MS,
    SECOND_MS,
    TIMER_TOPIC,
    arrived,
    bodies,
    crashed,
    send_at,
    timers_of,
)

RECALL = 370
ON = {"recallMessageEnable": True}

pytestmark = pytest.mark.usefixtures("frequent_looks")


def handle_of(answer: Command) -> str:
    return answer.text_fields()["recallHandle"]


async def recall(client: Client, handle: str, topic: str = TOPIC, **changes: Any) -> Command:
    fields = {"producerGroup": "p", "topic": topic, "recallHandle": handle, **changes}
    return await client.ask(RECALL, fields)


# -- handles -------------------------------------------------------------------------------------


@bounded
async def test_a_handle_says_which_message_of_which_broker(tmp_path: Path) -> None:
    clock = ManualClock()
    async with serving(tmp_path, clock=clock, brokerName="broker-x") as broker:
        client = await Client.to(broker)
        answer = await send_at(client, clock.now_ms() + 1234)
        text = base64.urlsafe_b64decode(handle_of(answer)).decode()
        key = answer.text_fields()["transactionId"]
        assert text == f"v1 {TOPIC} broker-x {clock.now_ms() + 1234} {key}"


@bounded
async def test_only_messages_that_wait_for_their_time_have_one(tmp_path: Path) -> None:
    async with serving(tmp_path, clock=ManualClock()) as broker:
        client = await Client.to(broker)
        for properties in ({}, {"DELAY": "2"}, {"TIMER_DELAY_SEC": "0"}):
            answer = await client.send(properties=properties)
            assert answer.code == 0
            assert "recallHandle" not in answer.text_fields()
        retried = await client.send("%RETRY%billing", properties={"TIMER_DELAY_SEC": "5"})
        assert retried.code == 0
        assert "recallHandle" not in retried.text_fields()


@pytest.mark.parametrize(
    "handle",
    [
        "", "?", "v1", "äöü", "=" * 20,
        base64.urlsafe_b64encode(b"v2 orders broker-a 1700003600000 K").decode(),
        base64.urlsafe_b64encode(b"v1 orders broker-a 1700003600000").decode(),
        base64.urlsafe_b64encode(b"\xff\xfe").decode(),
    ],
)  # fmt: skip
@bounded
async def test_what_is_no_handle_is_refused(tmp_path: Path, handle: str) -> None:
    async with serving(tmp_path, clock=ManualClock(), **ON) as broker:
        client = await Client.to(broker)
        await client.send()
        answer = await recall(client, handle)
        assert answer.code == ResponseCode.ILLEGAL_OPERATION
        assert answer.remark is not None
        assert "recall handle is invalid" in answer.remark


# -- recalls -------------------------------------------------------------------------------------


@bounded
async def test_a_recalled_message_never_comes(tmp_path: Path) -> None:
    clock = ManualClock()
    async with serving(tmp_path, clock=clock, **ON) as broker:
        client = await Client.to(broker)
        due_ms = clock.now_ms() + HOUR_MS
        answers = [await send_at(client, due_ms + n, b"%d" % n) for n in range(5)]
        answer = await recall(client, handle_of(answers[2]))
        assert answer.code == 0
        assert answer.text_fields()["msgId"] == answers[2].text_fields()["transactionId"]
        clock.advance(2 * HOUR_MS)
        found = [message.body for message in await arrived(client, 4)]
        assert found == [b"0", b"1", b"3", b"4"]
        await until(lambda: timers_of(broker)._due_ms == clock.now_ms())
        assert len(await bodies(client)) == 4


@bounded
async def test_a_recall_at_the_last_moment_holds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The message's second is in memory, and its millisecond comes before the recall is read."""
    clock = ManualClock()
    async with serving(tmp_path, clock=clock, **ON) as broker:
        client, timers, inbox = await Client.to(broker), timers_of(broker), broker.parts.inbox
        answers = [await send_at(client, clock.now_ms() + 500, b"%d" % n) for n in range(10)]
        clock.advance(499)
        await until(lambda: timers.behind == 0 and timers._due_ms == clock.now_ms())
        assert inbox is not None
        put = inbox.put

        def put_at_the_last_moment(messages: list[Message], settled: Settled) -> list[Appended]:
            clock.advance(1)
            asyncio.get_running_loop().call_soon(timers._deliver)
            return put(messages, settled)

        monkeypatch.setattr(inbox, "put", put_at_the_last_moment)
        assert (await recall(client, handle_of(answers[3]))).code == 0
        await until(lambda: timers._due_ms == clock.now_ms())
        assert await bodies(client) == [b"%d" % n for n in range(10) if n != 3]


@bounded
async def test_too_late_is_told(tmp_path: Path) -> None:
    clock = ManualClock()
    async with serving(tmp_path, clock=clock, **ON) as broker:
        client = await Client.to(broker)
        sent = await send_at(client, clock.now_ms() + SECOND_MS)
        clock.advance(SECOND_MS)
        answer = await recall(client, handle_of(sent))
        assert answer.code == ResponseCode.ILLEGAL_OPERATION
        assert answer.remark == "recall failed, timestamp invalid"
        assert len(await arrived(client, 1)) == 1
        assert (await recall(client, handle_of(sent))).code == ResponseCode.ILLEGAL_OPERATION
        clock.advance(-HOUR_MS)  # It was delivered, whatever the clock says now.
        assert (await recall(client, handle_of(sent))).code == ResponseCode.ILLEGAL_OPERATION


@bounded
async def test_a_recall_is_of_one_message_of_one_topic(tmp_path: Path) -> None:
    clock = ManualClock()
    async with serving(tmp_path, clock=clock, **ON) as broker:
        client = await Client.to(broker)
        due = {"TIMER_DELIVER_MS": str(clock.now_ms() + HOUR_MS), "UNIQ_KEY": "SAME"}
        await client.send("other", properties=due)
        sent = await client.send(properties=due)
        assert (await recall(client, handle_of(sent), "other")).code == 604
        assert (await recall(client, handle_of(sent))).code == 0
        clock.advance(HOUR_MS)
        await until(lambda: timers_of(broker)._due_ms == clock.now_ms())
        assert await bodies(client) == []
        assert len(await client.pulled("other")) == 1


@bounded
async def test_a_producer_may_also_send_the_recall_itself(tmp_path: Path) -> None:
    """As clients of RocketMQ 5.0 do; some versions put the topic in front of the key."""
    clock = ManualClock()
    async with serving(tmp_path, clock=clock) as broker:
        client = await Client.to(broker)
        due_ms = clock.now_ms() + HOUR_MS
        for n in range(3):
            properties = {"TIMER_DELIVER_MS": str(due_ms), "UNIQ_KEY": f"K{n}"}
            await client.send(body=b"%d" % n, properties=properties)
        for key in ("K0", f"{TOPIC}+K2"):
            properties = {"TIMER_DELIVER_MS": str(due_ms), "TIMER_DEL_UNIQKEY": key}
            assert (await client.send(properties=properties)).code == 0
        clock.advance(HOUR_MS)
        await until(lambda: timers_of(broker)._due_ms == clock.now_ms())
        assert await bodies(client) == [b"1"]
        late = await client.send(properties=properties)
        assert late.code == ResponseCode.MESSAGE_ILLEGAL


@bounded
async def test_what_is_written_anew_can_be_recalled(tmp_path: Path) -> None:
    clock = ManualClock()
    async with serving(tmp_path, clock=clock, timerRollWindowSlot=600, **ON) as broker:
        client, timers = await Client.to(broker), timers_of(broker)
        first = await send_at(client, clock.now_ms() + HOUR_MS, b"first")
        second = await send_at(client, clock.now_ms() + HOUR_MS, b"second")
        await send_at(client, clock.now_ms() + HOUR_MS, b"third")
        assert (await recall(client, handle_of(first))).code == 0
        for minute in range(60):
            clock.advance(60 * SECOND_MS)
            await until(lambda: timers.behind == 0 and timers._due_ms == clock.now_ms())
            if minute == 40:
                assert (await recall(client, handle_of(second))).code == 0
        await arrived(client, 1)
        assert await bodies(client) == [b"third"]


@bounded
async def test_a_recall_holds_when_all_of_it_is_overdue(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Message and recall were to be written anew and to be due, all while the broker was away."""
    monkeypatch.setattr(timers_module, "TAKE_IN_BATCH", 1)
    clock = ManualClock()
    how = {"clock": clock, "timerRollWindowSlot": 600, **ON}
    async with serving(tmp_path, **how) as broker:
        client = await Client.to(broker)
        due_ms = clock.now_ms() + HOUR_MS
        sent = [await send_at(client, due_ms + n % 2, b"%d" % n) for n in range(20)]
        clock.advance(120 * SECOND_MS)
        for answer in sent[::2]:
            assert (await recall(client, handle_of(answer))).code == 0
    clock.advance(2 * HOUR_MS)
    async with serving(tmp_path, **how) as broker:
        client, timers = await Client.to(broker), timers_of(broker)
        await until(lambda: timers.behind == 0 and timers._due_ms == clock.now_ms())
        assert await bodies(client) == [b"%d" % n for n in range(1, 20, 2)]


@bounded
async def test_a_recall_survives_a_restart_and_a_crash(tmp_path: Path) -> None:
    clock = ManualClock()
    running = tmp_path / "running"
    async with serving(running, clock=clock, **ON) as broker:
        client = await Client.to(broker)
        due_ms = clock.now_ms() + HOUR_MS
        sent = [await send_at(client, due_ms, b"%d" % n) for n in range(3)]
        assert (await recall(client, handle_of(sent[0]))).code == 0
    async with serving(running, clock=clock, **ON) as broker:
        client = await Client.to(broker)
        assert (await recall(client, handle_of(sent[1]))).code == 0
        image = await crashed(broker, tmp_path / "image")
    clock.advance(HOUR_MS)
    async with serving(image, clock=clock) as broker:
        client = await Client.to(broker)
        await until(lambda: timers_of(broker)._due_ms == clock.now_ms())
        assert await bodies(client) == [b"2"]


@bounded
async def test_a_recall_is_answered_when_the_disk_has_it(tmp_path: Path) -> None:
    clock, disk = ManualClock(), HeldDisk()
    how = {"clock": clock, "disk": disk, "flushDiskType": "SYNC_FLUSH", "syncFlushTimeout": 500}
    async with serving(tmp_path, **how, **ON) as broker:
        client = await Client.to(broker)
        sent = await send_at(client, clock.now_ms() + HOUR_MS)
        disk.hold()
        # RocketMQ answers so too: it is in the log, and will hold.
        assert (await recall(client, handle_of(sent))).code == 0
        disk.let_go()
        assert len(await client.pulled(TIMER_TOPIC)) == 2


# -- refusals ------------------------------------------------------------------------------------


@bounded
async def test_recalls_are_off_until_they_are_wanted(tmp_path: Path) -> None:
    clock = ManualClock()
    async with serving(tmp_path, clock=clock) as broker:
        client = await Client.to(broker)
        sent = await send_at(client, clock.now_ms() + HOUR_MS)
        answer = await recall(client, handle_of(sent))
        assert answer.code == ResponseCode.NO_PERMISSION
        assert answer.remark == "recall failed, operation is forbidden"


@bounded
async def test_recalls_that_cannot_be_are_refused_as_rocketmq_does(tmp_path: Path) -> None:
    clock = ManualClock()
    async with serving(tmp_path, clock=clock, **ON) as broker:
        client = await Client.to(broker)
        await client.send()
        due_ms = clock.now_ms() + HOUR_MS

        async def refused(asked: str, **changes: Any) -> tuple[int, str | None]:
            known = {"topic": TOPIC, "broker": "broker-a", "due_ms": due_ms, "unique_key": "K"}
            answer = await recall(client, RecallHandle(**{**known, **changes}).encode(), asked)
            return answer.code, answer.remark

        assert await refused("none") == (17, "recall failed, the topic[none] not exist")
        assert await refused(TOPIC, topic="x") == (604, "recall failed, topic not match")
        elsewhere = "recall failed, broker service not available"
        assert await refused(TOPIC, broker="broker-b") == (604, elsewhere)
        for when_ms in (-1, 0, clock.now_ms(), clock.now_ms() + 73 * HOUR_MS):
            invalid = await refused(TOPIC, due_ms=when_ms)
            assert invalid == (604, "recall failed, timestamp invalid")
        assert await client.pulled(TIMER_TOPIC) == []


@bounded
async def test_a_broker_without_timers_has_nothing_to_recall(tmp_path: Path) -> None:
    async with serving(tmp_path, timerWheelEnable=False, **ON) as broker:
        client = await Client.to(broker)
        answer = await recall(client, "v1")
        assert answer.code == ResponseCode.SYSTEM_ERROR
        assert answer.remark is not None
        assert "timerWheelEnable" in answer.remark


@bounded
async def test_more_recalls_than_memory_has_room_for_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(timers_module, "RECALLS_PER_SECOND_MAX", 3)
    clock = ManualClock()
    async with serving(tmp_path, clock=clock, **ON) as broker:
        client = await Client.to(broker)
        due_ms = clock.now_ms() + HOUR_MS
        sent = [await send_at(client, due_ms, b"%d" % n) for n in range(5)]
        codes = []
        for answer in sent:
            codes.append((await recall(client, handle_of(answer))).code)
            await until(lambda: timers_of(broker).behind == 0)
        assert codes == [0, 0, 0, ResponseCode.SYSTEM_BUSY, ResponseCode.SYSTEM_BUSY]
        clock.advance(HOUR_MS)
        assert [message.body for message in await arrived(client, 2)] == [b"3", b"4"]
