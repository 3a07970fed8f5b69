"""What brokers ask a consumer for an operator: its state and offsets, to try a message, to move."""

import asyncio
from typing import Any

import msgspec

from cometmq.client.consumer.handling import Later
from cometmq.client.consumer.options import PullConsumerOptions, PushOptions
from cometmq.client.consumer.pull import PullConsumer
from cometmq.client.consumer.push import PushConsumer
from cometmq.client.received import ReceivedMessage
from cometmq.protocol.command import Command, Request
from cometmq.protocol.message_queue import (
    MessageQueue,
    by_queue,
    decode_queue_maps,
    decode_queue_numbers,
    encode_body,
)
from cometmq.testing import EmbeddedBroker
from tests.broker.brokers import Client, as_text, until

from .consumption import GROUP, TOPIC, Heard, numbered, shop

QUEUE = MessageQueue(TOPIC, "broker-a", 0)
QUICK = PushOptions(commit_interval_s=0.05, suspend_s=0.01)


def consumer_of(broker: EmbeddedBroker, handler: Any, **how: Any) -> PushConsumer:
    given = {"group": GROUP, "topics": TOPIC, "options": QUICK, **how}
    return PushConsumer(broker.namesrv, handler=handler, **given)


async def asked_by_broker(
    broker: EmbeddedBroker, client_id: str, code: int, fields: dict[str, object], body: bytes = b""
) -> Command:
    """A member's answer to its broker itself, as brokers of other versions ask, too."""
    running = broker._at(0).broker
    assert running is not None
    group = running.parts.context.clients.consumer_group(GROUP)
    assert group is not None
    member = group.find(client_id)
    assert member is not None
    return await member.connection.request(Request(code, as_text(fields), body), 5)


class _Info(msgspec.Struct, rename="camel"):
    properties: dict[str, str]
    subscription_set: list[dict[str, Any]]
    mq_table: dict[str, dict[str, Any]]


async def test_a_consumer_tells_what_it_is_doing() -> None:
    heard = Heard()
    async with shop() as (broker, sender), consumer_of(broker, heard, orderly=True) as consumer:
        await sender.send(*numbered(3))
        await sender.reaches(3)
        fields = {"consumerGroup": GROUP, "clientId": consumer.client_id, "jstackEnable": False}
        answer = await sender.client.ask(307, fields)
    assert answer.code == 0, answer.remark
    info = decode_queue_maps(answer.body, _Info, "running info")
    assert info.properties["PROP_CONSUME_TYPE"] == "CONSUME_PASSIVELY"
    assert info.properties["PROP_CONSUMEORDERLY"] == "true"
    assert {one["topic"] for one in info.subscription_set} == {TOPIC, f"%RETRY%{GROUP}"}
    state = by_queue(info.mq_table)[QUEUE]
    assert (state["commitOffset"], state["cachedMsgCount"], state["droped"]) == (3, 0, False)


async def test_a_consumer_tells_where_it_is() -> None:
    heard = Heard()
    async with shop() as (broker, sender), consumer_of(broker, heard) as consumer:
        await sender.send(*numbered(3))
        await sender.reaches(3)
        answer = await sender.client.ask(223, {"topic": TOPIC, "group": GROUP})
        other = await sender.client.ask(223, {"topic": "elsewhere", "group": GROUP})
    assert answer.code == 0, answer.remark
    assert consumer.client_id.encode() in answer.body
    assert decode_queue_numbers(answer.body) == {QUEUE: 3}
    assert decode_queue_numbers(other.body) == {}


async def _tried(client: Client, client_id: str, message_id: str) -> dict[str, Any]:
    fields = {"consumerGroup": GROUP, "clientId": client_id, "msgId": message_id, "topic": TOPIC}
    answer = await client.ask(309, fields)
    assert answer.code == 0, answer.remark
    result: dict[str, Any] = msgspec.json.decode(answer.body)
    return result


async def test_a_message_can_be_tried_without_touching_the_offset() -> None:
    heard = Heard()

    async def handle(message: ReceivedMessage) -> Later | None:
        await heard(message)
        return Later() if message.body == b"bad" else None

    async with shop() as (broker, sender), consumer_of(broker, handle) as consumer:
        await sender.send(b"good", b"bad")
        await sender.reaches(2)
        good, bad = (message.offset_message_id for message in heard.messages)
        assert (await _tried(sender.client, consumer.client_id, good))["consumeResult"] == (
            "CR_SUCCESS"
        )
        assert (await _tried(sender.client, consumer.client_id, bad))["consumeResult"] == "CR_LATER"
        assert await sender.committed() == 2
    assert heard.bodies == [b"good", b"bad", b"good", b"bad"]


async def test_a_pull_consumer_has_nothing_to_try_a_message_with() -> None:
    async with shop() as (broker, sender):
        await sender.send(b"one")
        options = PullConsumerOptions(commit_interval_s=0.05)
        how: dict[str, Any] = {"group": GROUP, "topics": TOPIC, "options": options}
        async with PullConsumer(broker.namesrv, **how) as consumer:
            (message,) = await consumer.poll()
            fields = {
                "consumerGroup": GROUP,
                "clientId": consumer.client_id,
                "msgId": message.offset_message_id,
                "topic": TOPIC,
            }
            answer = await sender.client.ask(309, fields)
    assert answer.code == 1
    assert answer.remark == "a pull consumer has no handler"


async def test_an_operator_moves_the_group_and_its_members_follow_at_once() -> None:
    heard = Heard()
    async with shop() as (broker, sender), consumer_of(broker, heard):
        await sender.send(*numbered(5))
        await sender.reaches(5)
        fields = {"topic": TOPIC, "group": GROUP, "queueId": 0, "offset": 2, "timestamp": 0}
        answer = await sender.client.ask(222, {**fields, "isForce": True})
        assert answer.code == 0, answer.remark
        await heard.counts(8)
        await sender.reaches(5)
    assert sorted(heard.bodies[5:]) == [b"2", b"3", b"4"]


async def test_a_broker_that_leaves_it_to_the_client_can_move_it_too() -> None:
    heard = Heard()
    async with shop() as (broker, sender), consumer_of(broker, heard) as consumer:
        await sender.send(*numbered(5))
        await sender.reaches(5)
        fields: dict[str, object] = {
            "topic": TOPIC,
            "group": GROUP,
            "timestamp": 0,
            "isForce": True,
        }
        body = encode_body({"offsetTable": {QUEUE: 3}})
        answer = await asked_by_broker(broker, consumer.client_id, 220, fields, body)
        assert answer.code == 0
        await heard.counts(7)
        await sender.reaches(5)
    assert sorted(heard.bodies[5:]) == [b"3", b"4"]


async def test_what_was_in_hand_before_a_move_is_not_committed_after_it() -> None:
    heard, go = Heard(), asyncio.Event()

    async def handle(message: ReceivedMessage) -> None:
        await heard(message)
        await go.wait()

    options = PushOptions(commit_interval_s=0.05, workers=1)
    async with shop() as (broker, sender):
        await sender.send(*numbered(5))
        async with consumer_of(broker, handle, options=options) as consumer:
            await heard.counts(1)
            fields: dict[str, object] = {"topic": TOPIC, "group": GROUP, "isForce": True}
            body = encode_body({"offsetTable": {QUEUE: 4}})
            await asked_by_broker(broker, consumer.client_id, 220, fields, body)
            await sender.reaches(4)
            go.set()
            await sender.reaches(5)
    assert heard.bodies == [b"0", b"4"]


async def test_a_question_about_another_group_is_refused() -> None:
    async with shop() as (broker, sender), consumer_of(broker, Heard()) as consumer:
        await sender.members(1)
        fields: dict[str, object] = {"topic": TOPIC, "group": "others"}
        answer = await asked_by_broker(broker, consumer.client_id, 221, fields)
    assert (answer.code, answer.remark) == (1, "group others is not in this consumer")


async def test_an_unknown_question_is_answered_as_such() -> None:
    async with shop() as (broker, sender), consumer_of(broker, Heard()) as consumer:
        await sender.members(1)
        await until(lambda: len(consumer.queues) == 2)
        answer = await asked_by_broker(broker, consumer.client_id, 4242, {})
    assert answer.code == 3
