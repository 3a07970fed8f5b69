"""Who is connected, who consumes what, and questions that are passed on to clients."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from cometmq.broker.admin import relays
from cometmq.broker.clients import Member
from cometmq.protocol.codes import Language, RequestCode, ResponseCode
from cometmq.protocol.command import Command, Request, Response
from cometmq.protocol.host import pack_host
from cometmq.protocol.message_id import offset_id
from cometmq.protocol.record import decode_record
from cometmq.transport.connection import Connection, Handler
from cometmq.transport.dial import connect
from tests.broker.desk import ADDRESS, JAVA_5_5, Desk, json_of, queues_of, stranger
from tests.transport.peers import serving

RUNNING_INFO = RequestCode.GET_CONSUMER_RUNNING_INFO
DIRECTLY = RequestCode.CONSUME_MESSAGE_DIRECTLY
STATUS = RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS
ASK_STATUS = RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT
STATUS_BODY = (
    b'{"consumerTable":{},"messageQueueTable":'
    b'{{"brokerName":"broker-a","queueId":1,"topic":"orders"}:7}}'
)


def test_the_members_of_a_group_and_what_they_want(desk: Desk) -> None:
    desk.online("billing", "orders", client_id="one", connection=stranger(1))
    desk.online("billing", "orders", client_id="two", connection=stranger(2))
    told = json_of(desk.ask(RequestCode.GET_CONSUMER_CONNECTION_LIST, consumerGroup="billing"))
    assert told["connectionSet"] == [
        {"clientId": "one", "clientAddr": "192.0.2.1:1", "language": "JAVA", "version": JAVA_5_5},
        {"clientId": "two", "clientAddr": "192.0.2.1:2", "language": "JAVA", "version": JAVA_5_5},
    ]
    assert told["subscriptionTable"]["orders"]["subString"] == "*"
    assert told["consumeType"] == "CONSUME_PASSIVELY"
    assert told["messageModel"] == "CLUSTERING"
    assert told["consumeFromWhere"] == "CONSUME_FROM_LAST_OFFSET"


def test_a_group_without_members_is_not_online(desk: Desk) -> None:
    refused = desk.ask(RequestCode.GET_CONSUMER_CONNECTION_LIST, consumerGroup="billing")
    assert refused.code == ResponseCode.CONSUMER_NOT_ONLINE
    assert refused.remark == "the consumer group[billing] not online"


def test_producers_of_a_group_and_of_all(desk: Desk) -> None:
    member = Member(stranger(3), "one", Language.GO, 317, desk.clock.now_ms())
    desk.context.clients.register_producer("shop", member)
    one = json_of(desk.ask(RequestCode.GET_PRODUCER_CONNECTION_LIST, producerGroup="shop"))
    assert one["connectionSet"] == [
        {"clientId": "one", "clientAddr": "192.0.2.1:3", "language": "GO", "version": 317}
    ]
    everyone = json_of(desk.ask(RequestCode.GET_ALL_PRODUCER_INFO))
    assert everyone["data"] == {
        "shop": [
            {
                "clientId": "one",
                "remoteIP": "/192.0.2.1:3",
                "language": "GO",
                "version": 317,
                "lastUpdateTimestamp": desk.clock.now_ms(),
            }
        ]
    }


def test_a_producer_group_that_is_not_there_is_said_so(desk: Desk) -> None:
    refused = desk.ask(RequestCode.GET_PRODUCER_CONNECTION_LIST, producerGroup="nobody")
    assert refused.code == ResponseCode.SYSTEM_ERROR
    assert refused.remark == "the producer group[nobody] not exist"
    assert json_of(desk.ask(RequestCode.GET_ALL_PRODUCER_INFO)) == {"data": {}}


def test_groups_of_a_topic_are_those_online_and_those_with_offsets(desk: Desk) -> None:
    desk.online("billing", "orders")
    desk.context.offsets.commit("archive", "orders", 0, 1)
    desk.context.offsets.commit("billing", "orders", 0, 1)
    who = RequestCode.QUERY_TOPIC_CONSUME_BY_WHO
    assert json_of(desk.ask(who, topic="orders")) == {"groupList": ["archive", "billing"]}
    assert json_of(desk.ask(who, topic="nothing")) == {"groupList": []}
    topics = json_of(desk.ask(RequestCode.QUERY_TOPICS_BY_CONSUMER, group="archive"))
    assert topics == {"topicList": ["orders"], "brokerAddr": str(ADDRESS)}


def test_the_subscription_of_a_group(desk: Desk) -> None:
    ask = RequestCode.QUERY_SUBSCRIPTION_BY_CONSUMER
    offline = json_of(desk.ask(ask, group="billing", topic="orders"))
    assert offline == {"group": "billing", "topic": "orders", "subscriptionData": None}
    desk.online("billing", "orders")
    online = json_of(desk.ask(ask, group="billing", topic="orders"))
    assert online["subscriptionData"]["expressionType"] == "TAG"


# -- questions that are passed on ----------------------------------------------------------------


@asynccontextmanager
async def consuming(
    desk: Desk, handlers: dict[int, Handler], client_id: str = "one"
) -> AsyncIterator[Connection]:
    """A consumer that is connected for real, and answers as told."""
    async with serving(desk.handlers, on_close=desk.context.clients.forget) as (_, address):
        consumer = await connect(str(address), handlers)
        heartbeat = {
            "clientID": client_id,
            "consumerDataSet": [
                {"groupName": "billing", "subscriptionDataSet": [{"topic": "orders"}]}
            ],
        }
        beat = Request(RequestCode.HEART_BEAT, {}, json.dumps(heartbeat).encode())
        assert (await consumer.request(beat, 5)).code == 0
        try:
            yield consumer
        finally:
            consumer.close()


async def test_what_a_consumer_says_of_itself_is_passed_on(desk: Desk) -> None:
    asked: list[dict[str, str]] = []

    def running(_: Connection, command: Command) -> Response:
        asked.append(command.text_fields())
        return Response(0, "as it is", {"extra": "1"}, b'{"mqTable":{{"queueId":0}:{}}}')

    fields = {"consumerGroup": "billing", "clientId": "one", "jstackEnable": "true"}
    async with consuming(desk, {RUNNING_INFO: running}):
        answer = await desk.ask_later(RUNNING_INFO, **fields)
    assert asked == [fields]
    assert answer == Response(0, "as it is", {"extra": "1"}, b'{"mqTable":{{"queueId":0}:{}}}')


async def test_a_refusal_of_a_consumer_is_passed_on(desk: Desk) -> None:
    def refuse(_: Connection, __: Command) -> Response:
        return Response(ResponseCode.SYSTEM_ERROR, "not me")

    async with consuming(desk, {RUNNING_INFO: refuse}):
        answer = await desk.ask_later(RUNNING_INFO, consumerGroup="billing", clientId="one")
    assert (answer.code, answer.remark) == (ResponseCode.SYSTEM_ERROR, "not me")


async def test_a_message_is_handed_to_one_consumer(desk: Desk) -> None:
    got: list[Command] = []

    def consume(_: Connection, command: Command) -> Response:
        got.append(command)
        return Response(body=b'{"consumeResult":"CR_SUCCESS"}')

    desk.topic("orders")
    desk.put("orders", tag="other")
    place = desk.put("orders", tag="this one")
    message_id = offset_id(pack_host(*ADDRESS), place.physical_offset)
    asked = {"consumerGroup": "billing", "clientId": "one", "topic": "orders"}
    async with consuming(desk, {DIRECTLY: consume}):
        answer = await desk.ask_later(DIRECTLY, msgId=message_id, **asked)
    assert answer.body == b'{"consumeResult":"CR_SUCCESS"}'
    (command,) = got
    told = {"brokerName": "broker-a", "topicSysFlag": "0", "groupSysFlag": "0"}
    assert command.text_fields() == {**asked, **told, "msgId": message_id}
    message = decode_record(memoryview(command.body), 0, place.physical_offset)
    assert message.property_map()["TAGS"] == "this one"


async def test_a_message_that_is_not_there_is_handed_to_nobody(desk: Desk) -> None:
    nowhere = offset_id(pack_host(*ADDRESS), 4711)
    async with consuming(desk, {}):
        asked = {"consumerGroup": "billing", "clientId": "one", "topic": "orders"}
        lost = await desk.ask_later(DIRECTLY, msgId=nowhere, **asked)
        wrong = await desk.ask_later(DIRECTLY, msgId="no id", **asked)
    assert lost.remark == "can not find message by the offset, 4711"
    assert wrong.code == ResponseCode.INVALID_PARAMETER


@pytest.mark.parametrize("asked", [{"clientId": "two"}, {}])
async def test_a_consumer_that_is_not_there_is_said_so(desk: Desk, asked: dict[str, str]) -> None:
    async with consuming(desk, {}):
        answer = await desk.ask_later(RUNNING_INFO, consumerGroup="billing", **asked)
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert answer.remark == f"The Consumer <billing> <{asked.get('clientId', '')}> not online"


async def test_a_consumer_too_old_to_answer_is_not_asked(desk: Desk) -> None:
    connection = desk.online("billing", "orders")
    group = desk.context.clients.consumer_group("billing")
    assert group is not None
    group.members[connection].version = 61
    answer = await desk.ask_later(RUNNING_INFO, consumerGroup="billing", clientId="one")
    assert "Version <61> too low to finish" in (answer.remark or "")


async def test_the_first_version_that_answers_is_asked(desk: Desk) -> None:
    async with consuming(desk, {RUNNING_INFO: lambda _, __: Response(body=b"old")}):
        group = desk.context.clients.consumer_group("billing")
        assert group is not None
        for member in group.members.values():
            member.version = 62
        answer = await desk.ask_later(RUNNING_INFO, consumerGroup="billing", clientId="one")
    assert answer.body == b"old"


async def test_a_consumer_that_is_silent_is_given_up(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(relays, "ANSWER_TIMEOUT_S", 0.05)
    async with consuming(desk, {RUNNING_INFO: lambda _, __: None}):
        answer = await desk.ask_later(RUNNING_INFO, consumerGroup="billing", clientId="one")
    assert answer.code == ResponseCode.CONSUME_MSG_TIMEOUT
    assert "consumer <billing> <one> Timeout: no answer from 127.0.0.1" in (answer.remark or "")


async def test_a_consumer_that_leaves_instead_of_answering_is_said_so(desk: Desk) -> None:
    def leave(connection: Connection, _: Command) -> None:
        connection.abort()

    async with consuming(desk, {RUNNING_INFO: leave}):
        answer = await desk.ask_later(RUNNING_INFO, consumerGroup="billing", clientId="one")
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert "invoke consumer <billing> <one> Exception" in (answer.remark or "")


async def test_where_consumers_say_that_they_are(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(relays, "STATUS_TIMEOUT_S", 0.2)
    asked: list[dict[str, str]] = []

    def tell(_: Connection, command: Command) -> Response:
        asked.append(command.text_fields())
        return Response(body=STATUS_BODY)

    def refuse(_: Connection, __: Command) -> Response:
        return Response(ResponseCode.SYSTEM_ERROR, "not me")

    async with (
        consuming(desk, {ASK_STATUS: tell}, "one"),
        consuming(desk, {ASK_STATUS: refuse}, "two"),
        consuming(desk, {ASK_STATUS: lambda _, __: None}, "three"),
    ):
        everyone = await desk.ask_later(STATUS, topic="orders", group="billing")
        two = await desk.ask_later(STATUS, topic="orders", group="billing", clientAddr="two")
    assert asked == [{"topic": "orders", "group": "billing"}]
    assert queues_of(everyone)["consumerTable"] == {"one": {"orders:1": 7}}
    assert queues_of(two)["consumerTable"] == {}


async def test_nobody_to_ask_for_a_status_is_said_so(desk: Desk) -> None:
    answer = await desk.ask_later(STATUS, topic="orders", group="nobody")
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert answer.remark == "No Any Consumer online in the consumer group: [nobody]"


async def test_questions_of_many_at_once_reach_a_consumer_side_by_side(desk: Desk) -> None:
    waiting: list[tuple[Connection, Command]] = []

    def later(connection: Connection, command: Command) -> None:
        waiting.append((connection, command))
        if len(waiting) == 5:
            for number, (asker, question) in enumerate(waiting):
                asker.answer(question, Response(body=str(number).encode()))

    async with consuming(desk, {RUNNING_INFO: later}):
        asked = [
            desk.ask_later(RUNNING_INFO, consumerGroup="billing", clientId="one") for _ in range(5)
        ]
        answers = await asyncio.gather(*asked)
    assert [answer.body for answer in answers] == [b"0", b"1", b"2", b"3", b"4"]
