"""Messages that could not be consumed: again later, and after too many times aside."""

from pathlib import Path
from typing import Any

import pytest

from cometmq.broker.broker import Broker
from cometmq.broker.stats import SEND_BACK_NUMS
from cometmq.protocol.codes import ResponseCode
from cometmq.protocol.command import encode_request
from cometmq.protocol.group_config import GroupConfig
from cometmq.protocol.message import StoredMessage
from cometmq.protocol.message_id import offset_id
from cometmq.protocol.message_queue import MessageQueue
from cometmq.protocol.topic_config import TopicConfig
from cometmq.testing.clock import ManualClock

from ..transport.peers import Peer
from .brokers import (
    GROUP,
    TOPIC,
    Client,
    bounded,
    context_of,
    number,
    request_of,
    serving,
)

RETRY, DEAD = f"%RETRY%{GROUP}", f"%DLQ%{GROUP}"

pytestmark = pytest.mark.usefixtures("frequent_looks")


def back(message: StoredMessage, **changes: Any) -> dict[str, Any]:
    return {
        "offset": message.physical_offset, "group": GROUP, "delayLevel": 0,
        "originMsgId": "", "originTopic": TOPIC, "maxReconsumeTimes": 16, **changes,
    }  # fmt: skip


async def one_message(broker: Broker, **properties: str) -> tuple[Client, StoredMessage]:
    client = await Client.to(broker)
    await client.send(body=b"hard", properties={"TAGS": "red", "KEYS": "k", **properties}, h=7)
    (message,) = await client.pulled(TOPIC)
    return client, message


# -- sent back -----------------------------------------------------------------------------------


@bounded
async def test_a_message_sent_back_comes_again_when_its_delay_is_over(tmp_path: Path) -> None:
    clock = ManualClock()
    async with serving(tmp_path, clock=clock) as broker:
        client, failed = await one_message(broker)
        assert (await client.ask(36, back(failed))).code == 0
        clock.advance(9_999)
        assert await client.pulled(RETRY) == []
        clock.advance(1)
        (again,) = await client.arrival(RETRY)

        assert (again.topic, again.queue_id, again.reconsume_times) == (RETRY, 0, 1)
        assert (again.body, again.flag) == (failed.body, failed.flag)
        assert (again.born_timestamp, again.born_host) == (failed.born_timestamp, failed.born_host)
        stored, first = again.property_map(), failed.property_map()
        assert {name: stored[name] for name in first} == first
        assert stored["RETRY_TOPIC"] == TOPIC
        store_host = context_of(broker).store.commit_log._store_host
        assert stored["ORIGIN_MESSAGE_ID"] == offset_id(store_host, failed.physical_offset)


@bounded
async def test_every_attempt_waits_longer_and_remembers_the_first(tmp_path: Path) -> None:
    clock = ManualClock()
    async with serving(tmp_path, clock=clock) as broker:
        client, message = await one_message(broker)
        origin = None
        for attempt, delay_ms in enumerate((10_000, 30_000, 60_000)):
            await client.ask(36, back(message))
            clock.advance(delay_ms - 1)
            assert len(await client.pulled(RETRY)) == attempt
            clock.advance(1)
            (message,) = await client.arrival(RETRY, offset=attempt)
            stored = message.property_map()
            origin = origin or stored["ORIGIN_MESSAGE_ID"]
            assert message.reconsume_times == attempt + 1
            assert (stored["RETRY_TOPIC"], stored["ORIGIN_MESSAGE_ID"]) == (TOPIC, origin)
            assert stored["TAGS"] == "red"


@pytest.mark.parametrize(("level", "delay_ms"), [(1, 1000), (2, 5000), (99, 7_200_000)])
@bounded
async def test_a_consumer_may_choose_the_delay(tmp_path: Path, level: int, delay_ms: int) -> None:
    clock = ManualClock()
    async with serving(tmp_path, clock=clock) as broker:
        client, failed = await one_message(broker)
        await client.ask(36, back(failed, delayLevel=level))
        clock.advance(delay_ms - 1)
        assert await client.pulled(RETRY) == []
        clock.advance(1)
        assert len(await client.arrival(RETRY)) == 1


@bounded
async def test_properties_that_others_wrote_badly_come_back_as_they_were(tmp_path: Path) -> None:
    clock = ManualClock()
    async with serving(tmp_path, clock=clock) as broker:
        client = await Client.to(broker)
        await client.send(i="odd\x01a\x01b\x02empty\x01\x02TAGS\x01red\x02loose")
        (failed,) = await client.pulled(TOPIC)
        assert (await client.ask(36, back(failed, delayLevel=1))).code == 0
        clock.advance(1000)
        (again,) = await client.arrival(RETRY)
        assert again.property_map()["odd"] == "a\x01b"
        assert again.property_map()["TAGS"] == "red"


@bounded
async def test_a_retry_goes_only_to_queues_that_its_topic_has(tmp_path: Path) -> None:
    clock = ManualClock()
    async with serving(tmp_path, clock=clock) as broker:
        client, failed = await one_message(broker)
        await client.heartbeat("me", GROUP)
        context_of(broker).groups.update(GroupConfig(GROUP, retry_queue_nums=8))
        for _ in range(20):
            await client.ask(36, back(failed, delayLevel=1))
        clock.advance(1000)
        found: list[StoredMessage] = []
        while len(found) < 20:
            found += await client.arrival(RETRY, 0, len(found))


@bounded
async def test_a_group_with_several_retry_queues_uses_them_all(tmp_path: Path) -> None:
    clock = ManualClock()
    async with serving(tmp_path, clock=clock) as broker:
        client, failed = await one_message(broker)
        context_of(broker).groups.update(GroupConfig(GROUP, retry_queue_nums=3))
        for _ in range(50):
            await client.ask(36, back(failed, delayLevel=1))
        clock.advance(1000)
        counts = [len(await client.arrival(RETRY, queue_id)) for queue_id in range(3)]
        assert all(counts)


# -- dead letters --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "changes", [{"delayLevel": -1}, {"maxReconsumeTimes": 0}, {"maxReconsumeTimes": -1}]
)
@bounded
async def test_a_message_that_is_given_up_is_a_dead_letter_at_once(
    tmp_path: Path, changes: dict[str, Any]
) -> None:
    async with serving(tmp_path) as broker:
        client, failed = await one_message(broker)
        assert (await client.ask(36, back(failed, **changes))).code == 0
        (dead,) = await client.pulled(DEAD)

        assert (dead.body, dead.queue_id, dead.reconsume_times) == (b"hard", 0, 1)
        assert dead.property_map()["RETRY_TOPIC"] == TOPIC
        assert context_of(broker).topics.get(DEAD) == TopicConfig(DEAD, 1, 1, 6)
        assert await client.pulled(RETRY) == []


@bounded
async def test_after_as_many_attempts_as_allowed_it_is_a_dead_letter(tmp_path: Path) -> None:
    clock = ManualClock()
    async with serving(tmp_path, clock=clock) as broker:
        client, message = await one_message(broker)
        for attempt in range(2):
            await client.ask(36, back(message, delayLevel=1, maxReconsumeTimes=2))
            clock.advance(1000)
            (message,) = await client.arrival(RETRY, offset=attempt)
        await client.ask(36, back(message, delayLevel=1, maxReconsumeTimes=2))
        (dead,) = await client.pulled(DEAD)
        assert dead.reconsume_times == 3


@bounded
async def test_old_clients_and_silent_ones_leave_the_number_to_the_group(tmp_path: Path) -> None:
    async with serving(tmp_path) as broker:
        client, failed = await one_message(broker)
        context_of(broker).groups.update(GroupConfig(GROUP, retry_max_times=0))
        silent = back(failed)
        del silent["maxReconsumeTimes"]
        await client.ask(36, silent)
        assert len(await client.pulled(DEAD)) == 1
        frame = b"".join(encode_request(request_of(36, back(failed)), 1))
        with await Peer.to(broker.address) as old:
            await old.send(frame.replace(b'"version":513', b'"version": 62'))
            assert (await old.answer()).code == 0
        assert len(await client.pulled(DEAD)) == 2


# -- refusals ------------------------------------------------------------------------------------


@bounded
async def test_a_group_without_retry_queues_loses_what_it_sends_back(tmp_path: Path) -> None:
    async with serving(tmp_path) as broker:
        client, failed = await one_message(broker)
        context_of(broker).groups.update(GroupConfig(GROUP, retry_queue_nums=0))
        end = context_of(broker).store.appended.value
        assert (await client.ask(36, back(failed))).code == 0
        assert context_of(broker).store.appended.value == end


@bounded
async def test_what_cannot_be_sent_back_is_refused(tmp_path: Path) -> None:
    async with serving(tmp_path) as broker:
        client, failed = await one_message(broker)
        lost = await client.ask(36, back(failed, offset=12_345))
        assert lost.code == ResponseCode.SYSTEM_ERROR
        assert lost.remark == "look message by offset failed, 12345"
        strange = await client.ask(36, back(failed, group="no name"))
        assert strange.code == ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST
        context_of(broker).topics.update(TopicConfig(RETRY, 1, 1, perm=4))
        closed = await client.ask(36, back(failed))
        assert closed.code == ResponseCode.NO_PERMISSION


@bounded
async def test_an_unknown_group_sends_nothing_back_where_none_is_made(tmp_path: Path) -> None:
    async with serving(tmp_path, autoCreateSubscriptionGroup=False) as broker:
        client, context = await Client.to(broker), context_of(broker)
        await client.send()
        for answer in (
            await client.ask(36, {"offset": 0, "group": GROUP}),
            await client.send(RETRY),
        ):
            assert answer.code == ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST
        assert context.topics.get(RETRY) is None


@bounded
async def test_a_broker_that_may_not_be_written_takes_nothing_back(tmp_path: Path) -> None:
    async with serving(tmp_path, brokerPermission=4) as broker:
        client, failed = await one_message(broker)
        assert (await client.ask(36, back(failed))).code == ResponseCode.NO_PERMISSION


# -- sent to the retry topic by the consumer itself ----------------------------------------------


@bounded
async def test_a_consumer_may_send_to_its_retry_topic(tmp_path: Path) -> None:
    clock = ManualClock()
    async with serving(tmp_path, clock=clock) as broker:
        client = await Client.to(broker)
        answer = await client.send(RETRY, j=3, l=16, properties={"DELAY": "1"})
        assert answer.code == 0
        clock.advance(1000)
        (message,) = await client.arrival(RETRY)
        assert message.reconsume_times == 3
        assert context_of(broker).topics.get(RETRY) == TopicConfig(RETRY, 1, 1, 6)


@pytest.mark.parametrize(("times", "allowed", "dead"), [(16, 16, 0), (17, 16, 1), (17, -1, 1)])
@bounded
async def test_one_that_was_tried_too_often_goes_to_the_dead_letters(
    tmp_path: Path, times: int, allowed: int, dead: int
) -> None:
    async with serving(tmp_path) as broker:
        client = await Client.to(broker)
        answer = await client.send(RETRY, j=times, l=allowed, properties={"DELAY": "3"})
        assert (answer.code, number(answer, "queueId")) == (0, 0)
        letters = await client.pulled(DEAD)
        assert len(letters) == dead
        assert all(letter.reconsume_times == times for letter in letters)


@bounded
async def test_a_group_that_consumes_in_order_gives_up_at_once(tmp_path: Path) -> None:
    clock = ManualClock()
    async with serving(tmp_path, clock=clock) as broker:
        client = await Client.to(broker)
        await client.send()
        queue = MessageQueue(TOPIC, "broker-a", 0)
        await client.ask(41, {}, {"consumerGroup": GROUP, "clientId": "a", "mqSet": [queue]})
        await client.send(RETRY, body=b"in order", j=1, l=16)
        assert [message.body for message in await client.pulled(DEAD)] == [b"in order"]
        clock.advance(60_001)
        await client.send(RETRY, body=b"no longer", j=1, l=16)
        assert [message.body for message in await client.pulled(RETRY)] == [b"no longer"]


# -- figures -------------------------------------------------------------------------------------


@bounded
async def test_a_topic_that_a_sender_made_up_is_no_figure(tmp_path: Path) -> None:
    async with serving(tmp_path) as broker:
        client, failed = await one_message(broker, RETRY_TOPIC="made-up")
        await client.ask(36, back(failed))
        stats = context_of(broker).stats
        assert stats.find(SEND_BACK_NUMS, f"made-up@{GROUP}") is None
        counted = stats.find(SEND_BACK_NUMS, f"{TOPIC}@{GROUP}")
        assert counted is not None
        assert counted.total == 1
