"""Sends: what is checked, what is stored, and what is answered."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from cometmq.broker.topics import NOT_FOR_CLIENTS, TEMPLATE_TOPIC
from cometmq.protocol.batch import encode_batch
from cometmq.protocol.codes import ResponseCode
from cometmq.protocol.host import Host
from cometmq.protocol.message import Message
from cometmq.protocol.message_id import parse_offset_id
from cometmq.protocol.properties import PROPERTIES_BYTES_MAX, encode_properties
from cometmq.protocol.topic_config import TopicConfig

from ..transport.peers import Peer
from .brokers import (
    BORN_MS,
    TOPIC,
    Client,
    binary_frame,
    bodies_in,
    bounded,
    context_of,
    long_send_fields,
    messages_in,
    number,
    request_of,
    send_fields,
    serving,
)

KIB, MIB = 1024, 1024**2


def batch_of(*bodies: bytes, properties: bytes = b"") -> bytes:
    return encode_batch(Message(TOPIC, 0, body, properties) for body in bodies)


# -- answers -------------------------------------------------------------------------------------


@bounded
async def test_an_answer_tells_where_the_message_is(tmp_path: Path) -> None:
    async with serving(tmp_path) as broker:
        client = await Client.to(broker)
        first = await client.send(body=b"first", queue_id=2)
        second = await client.send(body=b"second", queue_id=2, properties={"UNIQ_KEY": "7F00"})

        fields = second.text_fields()
        assert (second.code, second.remark) == (0, None)
        assert (fields["queueId"], fields["queueOffset"]) == ("2", "1")
        assert (fields["MSG_REGION"], fields["TRACE_ON"]) == ("DefaultRegion", "true")
        assert fields["transactionId"] == "7F00"
        host, offset = parse_offset_id(fields["msgId"])
        assert host == broker.address
        (record,) = messages_in(await client.ask(33, {"offset": offset}))
        assert (record.body, record.queue_id, record.queue_offset) == (b"second", 2, 1)
        assert number(first, "queueOffset") == 0


@bounded
async def test_a_message_is_stored_as_it_was_sent(tmp_path: Path) -> None:
    properties = {"TAGS": "red", "KEYS": "a b", "文": "宝"}
    async with serving(tmp_path, regionId="south", traceOn=False) as broker:
        client = await Client.to(broker)
        await client.send(properties=properties, f=0x1, h=7, j=3)
        (message,) = await client.pulled(TOPIC)

    stored = message.property_map()
    assert {name: stored[name] for name in properties} == properties
    assert stored["CLUSTER"] == "DefaultCluster"
    assert (stored["MSG_REGION"], stored["TRACE_ON"]) == ("south", "false")
    assert len(stored["UNIQ_KEY"]) == 32
    assert (message.flag, message.sys_flag, message.reconsume_times) == (7, 1, 3)
    assert message.born_timestamp == BORN_MS
    assert message.born_host == Host("127.0.0.1", client.connection.local.port)


@bounded
async def test_a_message_without_a_unique_id_gets_one_and_hears_of_it(tmp_path: Path) -> None:
    async with serving(tmp_path) as broker:
        client = await Client.to(broker)
        answer = await client.send()
        (message,) = await client.pulled(TOPIC)

    assert answer.text_fields()["transactionId"] == message.property_map()["UNIQ_KEY"]


@bounded
async def test_the_header_with_long_names_says_the_same(tmp_path: Path) -> None:
    async with serving(tmp_path) as broker:
        client = await Client.to(broker)
        fields = long_send_fields(queue_id=1, properties="TAGS\x01red\x02", flag=7)
        answer = await client.ask(10, fields, b"hello")
        (message,) = await client.pulled(TOPIC, 1)

    assert (answer.code, number(answer, "queueId"), number(answer, "queueOffset")) == (0, 1, 0)
    assert (message.body, message.flag, message.property_map()["TAGS"]) == (b"hello", 7, "red")


@bounded
async def test_a_binary_header_is_answered_with_one(tmp_path: Path) -> None:
    async with serving(tmp_path) as broker:
        with await Peer.to(broker.address) as peer:
            await peer.send(binary_frame(request_of(310, send_fields(), b"hello"), 77))
            answer = await peer.answer()
        client = await Client.to(broker)

        assert (answer.code, answer.opaque, answer.kind.name) == (0, 77, "BINARY")
        assert answer.text_fields()["queueOffset"] == "0"
        assert bodies_in(await client.pull()) == [b"hello"]


@bounded
async def test_a_one_way_send_is_stored_and_not_answered(tmp_path: Path) -> None:
    async with serving(tmp_path) as broker:
        client = await Client.to(broker)
        client.tell(310, send_fields(), b"one way")
        client.tell(310, send_fields(queue_id=99), b"refused, and nobody hears of it")
        await client.send(body=b"answered")

        assert [m.body for m in await client.pulled(TOPIC)] == [b"one way", b"answered"]


@bounded
async def test_answers_come_in_the_order_of_the_sends(tmp_path: Path) -> None:
    async with serving(tmp_path) as broker:
        client = await Client.to(broker)
        sends = [client.send(body=b"%d" % n, properties={"WAIT": "true"}) for n in range(200)]
        answers = await asyncio.gather(*sends)

        assert [number(answer, "queueOffset") for answer in answers] == list(range(200))
        found = await client.pulled(TOPIC)
        assert [message.body for message in found] == [b"%d" % n for n in range(200)]


# -- topics that do not exist yet ----------------------------------------------------------------


@pytest.mark.parametrize(("wanted", "made"), [(4, 4), (1, 1), (100, 8)])
@bounded
async def test_a_missing_topic_is_made_after_the_template(
    tmp_path: Path, wanted: int, made: int
) -> None:
    async with serving(tmp_path) as broker:
        client = await Client.to(broker)
        assert (await client.send("fresh", d=wanted)).code == 0
        topic = context_of(broker).topics.get("fresh")
        assert topic == TopicConfig("fresh", made, made, 6)


@bounded
async def test_the_template_has_as_many_queues_as_the_setting_says(tmp_path: Path) -> None:
    async with serving(tmp_path, defaultTopicQueueNums=3) as broker:
        client = await Client.to(broker)
        await client.send("fresh", d=100)
        topics = context_of(broker).topics

        template, fresh = topics.get(TEMPLATE_TOPIC), topics.get("fresh")
        assert template is not None
        assert fresh is not None
        assert (template.write_queue_nums, template.perm) == (3, 7)
        assert (fresh.write_queue_nums, fresh.read_queue_nums) == (3, 3)


@bounded
async def test_no_topic_is_made_where_that_is_switched_off(tmp_path: Path) -> None:
    async with serving(tmp_path, autoCreateTopicEnable=False) as broker:
        client = await Client.to(broker)
        context_of(broker).topics.update(TopicConfig("known", 4, 4))

        refused = await client.send("fresh")
        assert refused.code == ResponseCode.TOPIC_NOT_EXIST
        assert refused.remark is not None
        assert refused.remark.startswith("topic[fresh] not exist, apply first please!")
        assert (await client.send("known")).code == 0
        assert context_of(broker).topics.get("fresh") is None


@pytest.mark.parametrize("template", ["", "no-such-topic", "known"])
@bounded
async def test_no_topic_is_made_after_one_that_is_no_template(
    tmp_path: Path, template: str
) -> None:
    async with serving(tmp_path) as broker:
        client = await Client.to(broker)
        await client.send("known")
        answer = await client.send("fresh", c=template)
        assert answer.code == ResponseCode.TOPIC_NOT_EXIST


@bounded
async def test_no_topic_is_made_without_queues(tmp_path: Path) -> None:
    async with serving(tmp_path) as broker:
        client = await Client.to(broker)
        assert (await client.send("fresh", d=0)).code == ResponseCode.TOPIC_NOT_EXIST
        assert (await client.send("fresh", d=-5)).code == ResponseCode.TOPIC_NOT_EXIST


@bounded
async def test_there_are_no_more_topics_than_the_setting_allows(tmp_path: Path) -> None:
    async with serving(tmp_path) as plain:
        own = len(context_of(plain).topics)
    async with serving(tmp_path, maxTopicNum=own + 2) as broker:
        client = await Client.to(broker)
        codes = [(await client.send(f"fresh-{n}")).code for n in range(4)]

        assert codes == [0, 0, ResponseCode.TOPIC_NOT_EXIST, ResponseCode.TOPIC_NOT_EXIST]
        assert (await client.send("fresh-0")).code == 0


@pytest.mark.parametrize("name", ["a b", "a/b", "..", "", "ü", "x" * 128, "%RETRY%" + "x" * 249])
@bounded
async def test_a_name_that_cannot_be_is_refused(tmp_path: Path, name: str) -> None:
    async with serving(tmp_path) as broker:
        client = await Client.to(broker)
        before = len(context_of(broker).topics)
        assert (await client.send(name)).code == ResponseCode.INVALID_PARAMETER
        assert len(context_of(broker).topics) == before


@bounded
async def test_the_longest_names_are_taken(tmp_path: Path) -> None:
    async with serving(tmp_path) as broker:
        client = await Client.to(broker)
        for name in ("x" * 127, "%RETRY%" + "x" * 248):
            assert (await client.send(name)).code == 0
            (message,) = await client.pulled(name)
            assert message.topic == name


@pytest.mark.parametrize("name", sorted(NOT_FOR_CLIENTS))
@bounded
async def test_topics_of_the_broker_itself_are_not_for_clients(tmp_path: Path, name: str) -> None:
    async with serving(tmp_path) as broker:
        client = await Client.to(broker)
        before = len(context_of(broker).topics)
        assert (await client.send(name)).code == ResponseCode.NO_PERMISSION
        assert len(context_of(broker).topics) == before


@bounded
async def test_without_write_permission_ordered_topics_are_closed(tmp_path: Path) -> None:
    async with serving(tmp_path, brokerPermission=4) as broker:
        client = await Client.to(broker)
        context_of(broker).topics.update(TopicConfig("ordered", 1, 1, order=True))

        assert (await client.send("ordered")).code == ResponseCode.NO_PERMISSION
        assert (await client.send("other")).code == 0


# -- queues --------------------------------------------------------------------------------------


@bounded
async def test_a_queue_outside_the_topic_is_refused(tmp_path: Path) -> None:
    async with serving(tmp_path) as broker:
        client = await Client.to(broker)
        context_of(broker).topics.update(TopicConfig("wide", read_queue_nums=6, write_queue_nums=2))

        assert (await client.send("wide", queue_id=5)).code == 0
        refused = await client.send("wide", queue_id=6)
        assert refused.code == ResponseCode.INVALID_PARAMETER
        assert refused.remark is not None
        assert "queueId[6] is illegal, topic wide has 6 queues" in refused.remark
        assert (await client.send("wide", queue_id=2**40)).code == ResponseCode.SYSTEM_ERROR


@bounded
async def test_the_broker_chooses_a_queue_for_who_has_none(tmp_path: Path) -> None:
    async with serving(tmp_path) as broker:
        client = await Client.to(broker)
        answers = [await client.send(queue_id=-1) for _ in range(100)]

        chosen = {number(answer, "queueId") for answer in answers}
        assert chosen == {0, 1, 2, 3}
        for answer in answers:
            offset = parse_offset_id(answer.text_fields()["msgId"])[1]
            (message,) = messages_in(await client.ask(33, {"offset": offset}))
            assert message.queue_id == number(answer, "queueId")


# -- messages that cannot be taken ---------------------------------------------------------------


@bounded
async def test_a_body_over_the_limit_is_refused(tmp_path: Path) -> None:
    async with serving(tmp_path, maxMessageSize=1000) as broker:
        client = await Client.to(broker)
        assert (await client.send(body=bytes(1000))).code == 0
        refused = await client.send(body=bytes(1001))

        assert refused.code == ResponseCode.MESSAGE_ILLEGAL
        assert refused.remark is not None
        assert "1001 bytes, maxMessageSize is 1000" in refused.remark
        assert len(await client.pulled(TOPIC)) == 1


@bounded
async def test_a_body_of_four_mebibytes_goes_through(tmp_path: Path) -> None:
    body = bytes(range(256)) * (4 * MIB // 256)
    async with serving(tmp_path, mappedFileSizeCommitLog=8 * MIB) as broker:
        client = await Client.to(broker)
        assert (await client.send(body=body)).code == 0
        assert (await client.send(body=body + b"x")).code == ResponseCode.MESSAGE_ILLEGAL
        assert bodies_in(await client.pull()) == [body]


@bounded
async def test_an_empty_body_is_a_message(tmp_path: Path) -> None:
    async with serving(tmp_path) as broker:
        client = await Client.to(broker)
        assert (await client.send(body=b"")).code == 0
        assert bodies_in(await client.pull()) == [b""]


@bounded
async def test_properties_over_the_limit_are_refused(tmp_path: Path) -> None:
    async with serving(tmp_path) as broker:
        client = await Client.to(broker)
        for size, code in ((32_000, 0), (PROPERTIES_BYTES_MAX, ResponseCode.MESSAGE_ILLEGAL)):
            assert (await client.send(properties={"a": "x" * size})).code == code
        assert len(await client.pulled(TOPIC)) == 1


@pytest.mark.parametrize(
    "changes", [{"h": 2**31}, {"g": 2**63}, {"j": 2**31}, {"f": 2**32}], ids=str
)
@bounded
async def test_a_number_that_no_record_can_hold_is_refused(
    tmp_path: Path, changes: dict[str, Any]
) -> None:
    async with serving(tmp_path) as broker:
        client = await Client.to(broker)
        assert (await client.send(**changes)).code == ResponseCode.SYSTEM_ERROR
        assert (await client.send()).code == 0
        assert len(await client.pulled(TOPIC)) == 1


@bounded
async def test_the_flags_of_address_families_are_the_brokers_own(tmp_path: Path) -> None:
    async with serving(tmp_path) as broker:
        client = await Client.to(broker)
        assert (await client.send(f=0x30)).code == 0
        (message,) = await client.pulled(TOPIC)
        assert (message.sys_flag, message.body) == (0, b"hello")


@pytest.mark.parametrize("flag", [4, 12])
@bounded
async def test_a_flag_of_transactions_without_one_is_refused_and_not_swallowed(
    tmp_path: Path, flag: int
) -> None:
    async with serving(tmp_path) as broker:
        client = await Client.to(broker)
        answer = await client.send(f=flag)
        assert answer.code == ResponseCode.MESSAGE_ILLEGAL
        assert answer.remark is not None
        assert "transaction" in answer.remark


@pytest.mark.parametrize("name", ["TIMER_DELAY_MS", "TIMER_DELIVER_MS", "TIMER_DELAY_SEC"])
@bounded
async def test_without_timers_they_are_refused_and_not_delivered(tmp_path: Path, name: str) -> None:
    async with serving(tmp_path, timerWheelEnable=False) as broker:
        client = await Client.to(broker)
        answer = await client.send(properties={name: "5"})
        assert answer.code == ResponseCode.SYSTEM_ERROR


@bounded
async def test_properties_of_users_that_sound_like_ours_mean_nothing(tmp_path: Path) -> None:
    properties = {
        "MY_TRAN_MSG": "true", "MY_TIMER_DELAY_MS": "5", "MY_UNIQ_KEY": "abc", "MY_DELAY": "3",
        "K8S_CLUSTER": "blue", "NOWAIT": "false", "MY_POP_CK": "1",
    }  # fmt: skip
    async with serving(tmp_path) as broker:
        client = await Client.to(broker)
        answer = await client.send(properties=properties)
        (message,) = await client.pulled(TOPIC)

        stored = message.property_map()
        assert {name: stored[name] for name in properties} == properties
        assert stored["CLUSTER"] == "DefaultCluster"
        assert answer.text_fields()["transactionId"] == stored["UNIQ_KEY"] != "abc"


@bounded
async def test_a_receipt_of_an_earlier_pop_is_left_out(tmp_path: Path) -> None:
    async with serving(tmp_path) as broker:
        client = await Client.to(broker)
        await client.send(properties={"POP_CK": "0 1 2", "TAGS": "red"})
        (message,) = await client.pulled(TOPIC)
        assert "POP_CK" not in message.property_map()
        assert message.property_map()["TAGS"] == "red"


@pytest.mark.parametrize("missing", ["b", "e", "g"])
@bounded
async def test_a_send_without_a_field_that_it_needs_is_refused(
    tmp_path: Path, missing: str
) -> None:
    async with serving(tmp_path) as broker:
        client = await Client.to(broker)
        fields = send_fields()
        del fields[missing]
        answer = await client.ask(310, fields, b"hello")
        assert answer.code == ResponseCode.SYSTEM_ERROR
        assert answer.remark is not None
        assert f"`{missing}`" in answer.remark


# -- batches -------------------------------------------------------------------------------------


@pytest.mark.parametrize("code", [320, 310, 10])
@bounded
async def test_a_batch_is_as_many_messages(tmp_path: Path, code: int) -> None:
    fields = long_send_fields(batch=True) if code == 10 else send_fields(m=True)
    properties = encode_properties({"TAGS": "red", "UNIQ_KEY": "7F"})
    body = batch_of(b"a", b"b", b"", b"d", properties=properties)
    async with serving(tmp_path) as broker:
        client = await Client.to(broker)
        await client.send(body=b"before")
        answer = await client.ask(code, fields, body)
        found = await client.pulled(TOPIC, 0, 1)

        assert (answer.code, number(answer, "queueOffset")) == (0, 1)
        ids = answer.text_fields()["msgId"].split(",")
        assert [parse_offset_id(one)[1] for one in ids] == [m.physical_offset for m in found]
        assert [message.body for message in found] == [b"a", b"b", b"", b"d"]
        assert {message.property_map()["TAGS"] for message in found} == {"red"}


@pytest.mark.parametrize(
    "body",
    [b"", b"\0" * 10, batch_of(b"a")[:-1], batch_of(b"a") + b"\0" * 8, b"\xff" * 40],
    ids=["empty", "short", "cut", "stray", "wild"],
)
@bounded
async def test_a_batch_that_is_none_is_refused(tmp_path: Path, body: bytes) -> None:
    async with serving(tmp_path) as broker:
        client = await Client.to(broker)
        answer = await client.ask(320, send_fields(m=True), body)
        assert answer.code == ResponseCode.MESSAGE_ILLEGAL
        assert await client.pulled(TOPIC) == []


@bounded
async def test_a_batch_over_the_limit_is_refused_whole(tmp_path: Path) -> None:
    async with serving(tmp_path, maxMessageSize=1000) as broker:
        client = await Client.to(broker)
        body = batch_of(bytes(400), bytes(400), bytes(400))
        answer = await client.ask(320, send_fields(m=True), body)
        assert answer.code == ResponseCode.MESSAGE_ILLEGAL
        assert await client.pulled(TOPIC) == []


@bounded
async def test_a_batch_to_a_retry_topic_is_refused(tmp_path: Path) -> None:
    async with serving(tmp_path) as broker:
        client = await Client.to(broker)
        answer = await client.ask(320, send_fields("%RETRY%billing", m=True), batch_of(b"a"))
        assert answer.code == ResponseCode.MESSAGE_ILLEGAL


@bounded
async def test_a_transaction_inside_a_batch_is_refused_with_all_of_it(tmp_path: Path) -> None:
    async with serving(tmp_path) as broker:
        client = await Client.to(broker)
        half = Message(TOPIC, 0, b"half", encode_properties({"TRAN_MSG": "true"}))
        body = encode_batch([Message(TOPIC, 0, b"plain"), half])
        answer = await client.ask(320, send_fields(m=True), body)
        assert answer.code == ResponseCode.MESSAGE_ILLEGAL
        assert await client.pulled(TOPIC) == []


@bounded
async def test_what_a_refused_batch_left_in_the_log_is_read_at_once(tmp_path: Path) -> None:
    """With properties that the record's own checksum makes too long, those before it stay."""
    long = encode_properties({"a": "x" * (PROPERTIES_BYTES_MAX - 3)})
    body = encode_batch([Message(TOPIC, 0, b"small"), Message(TOPIC, 0, b"large", long)])
    async with serving(tmp_path) as broker:
        client = await Client.to(broker)
        answer = await client.ask(320, send_fields(m=True), body)
        assert answer.code == ResponseCode.MESSAGE_ILLEGAL
        assert [message.body for message in await client.pulled(TOPIC)] == [b"small"]
