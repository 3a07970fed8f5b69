"""Requests about topics, as mqadmin 5.5.0 sends them."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from cometmq.broker.admin.pages import PAGE_MAX, page
from cometmq.broker.stats import TOPIC_PUT_NUMS
from cometmq.protocol.codes import RequestCode, ResponseCode
from cometmq.protocol.command import Request
from cometmq.protocol.data_version import DataVersion
from cometmq.protocol.topic_config import TopicConfig
from cometmq.testing.clock import ManualClock
from cometmq.transport.dial import connect
from tests.broker.desk import Desk, json_of
from tests.transport.peers import serving, until

CREATE = RequestCode.UPDATE_AND_CREATE_TOPIC
CREATE_LIST = RequestCode.UPDATE_AND_CREATE_TOPIC_LIST
DELETE = RequestCode.DELETE_TOPIC_IN_BROKER
PULL = RequestCode.PULL_MESSAGE


def wanted(name: str, **changes: object) -> dict[str, object]:
    """Fields of `updateTopic -r 4 -w 4`, as captured."""
    return {
        "topic": name, "readQueueNums": 4, "writeQueueNums": 4, "perm": 6, "order": False,
        "topicFilterType": "SINGLE_TAG", "topicSysFlag": 0, "attributes": "", "force": False,
        "defaultTopic": "TBW102", **changes,
    }  # fmt: skip


def listed(name: str, **changes: object) -> dict[str, object]:
    """A topic in the body of `updateTopicList`, as captured."""
    return {
        "topicName": name, "readQueueNums": 3, "writeQueueNums": 3, "perm": 6, "order": False,
        "topicFilterType": "SINGLE_TAG", "topicSysFlag": 0, "attributes": {}, **changes,
    }  # fmt: skip


def test_a_topic_is_made_and_later_changed_and_name_servers_hear_of_it(desk: Desk) -> None:
    made = wanted("orders", attributes="+message.type=FIFO")
    assert desk.ask(CREATE, **made).code == 0
    topic = desk.context.topics.get("orders")
    assert topic == TopicConfig("orders", 4, 4, attributes={"message.type": "FIFO"})
    assert desk.ask(CREATE, **wanted("orders", readQueueNums=8, perm=4, order=True)).code == 0
    changed = desk.context.topics.get("orders")
    assert changed == TopicConfig(
        "orders", 8, 4, 4, order=True, attributes={"message.type": "FIFO"}
    )
    assert desk.announced == 2


def test_a_change_that_changes_nothing_makes_no_new_version(desk: Desk) -> None:
    desk.ask(CREATE, **wanted("orders", attributes="+message.type=FIFO"))
    version = desk.context.topics.version
    assert desk.ask(CREATE, **wanted("orders")).code == 0
    assert desk.ask(CREATE, **wanted("orders", attributes="+message.type=FIFO")).code == 0
    assert desk.context.topics.version == version
    assert desk.announced == 1


@pytest.mark.parametrize(
    ("changes", "code", "said"),
    [
        ({"topic": "bad topic"}, 29, "only letters, digits"),
        ({"topic": "x" * 128}, 29, "128 characters, 127 are allowed"),
        ({"topic": "TBW102"}, 29, "The topic[TBW102] is conflict with system topic."),
        ({"topic": "broker-a"}, 29, "is conflict with system topic."),
        ({"topic": "rmq_sys_anything"}, 29, "is conflict with system topic."),
        ({"perm": 8}, 29, "perm 8 of orders: 0 to 7 is expected"),
        ({"perm": -1}, 29, "perm -1 of orders"),
        ({"readQueueNums": -1}, 29, "-1 queues: 0 to 65536 are possible"),
        ({"writeQueueNums": 65_537}, 29, "65537 queues"),
        ({"topicFilterType": "NO_TAG"}, 29, "SINGLE_TAG or MULTI_TAG is expected"),
        ({"attributes": "+message.type=MIXED"}, 29, "MIXED message type is not supported."),
        ({"attributes": "+message.type=BOGUS"}, 1, "value is not in set: [NORMAL"),
        ({"attributes": "+queue.type=BatchCQ"}, 1, "topic orders: queue.type=BatchCQ: "),
        ({"attributes": "message.type"}, 1, "neither +key=value nor -key"),
    ],
)  # fmt: skip
def test_a_topic_that_cannot_be_is_refused(
    desk: Desk, changes: dict[str, Any], code: int, said: str
) -> None:
    before = list(desk.context.topics)
    refused = desk.ask(CREATE, **wanted("orders") | changes)
    assert refused.code == code
    assert said in (refused.remark or "")
    assert list(desk.context.topics) == before


def test_topics_of_a_list_are_made_together(desk: Desk) -> None:
    topics = [listed("one"), listed("two", perm=4, attributes={"+message.type": "DELAY"})]
    assert desk.ask(CREATE_LIST, {"topicConfigList": topics}).code == 0
    assert desk.context.topics.get("one") == TopicConfig("one", 3, 3)
    made = desk.context.topics.get("two")
    assert made == TopicConfig("two", 3, 3, 4, attributes={"message.type": "DELAY"})


@pytest.mark.parametrize("wrong", [{"topicName": "TBW102"}, {"perm": 9}, {"writeQueueNums": -5}])
def test_a_list_with_one_wrong_topic_makes_none(desk: Desk, wrong: dict[str, Any]) -> None:
    refused = desk.ask(CREATE_LIST, {"topicConfigList": [listed("one"), listed("two") | wrong]})
    assert refused.code == ResponseCode.INVALID_PARAMETER
    assert desk.context.topics.get("one") is None


def test_a_list_beyond_the_number_of_topics_makes_none(tmp_path: Path, clock: ManualClock) -> None:
    desk = Desk(tmp_path / "small", clock, topics_max=12)
    refused = desk.ask(CREATE_LIST, {"topicConfigList": [listed(f"t{n}") for n in range(5)]})
    assert refused.code == ResponseCode.INVALID_PARAMETER
    assert "maxTopicNum allows no more" in (refused.remark or "")
    assert desk.context.topics.get("t0") is None
    desk.close()


def test_a_made_topic_is_there_after_a_restart(tmp_path: Path, clock: ManualClock) -> None:
    desk = Desk(tmp_path / "store", clock)
    desk.ask(CREATE, **wanted("orders"))
    desk.store.close()  # Nobody saves the tables once more, as after a crash.
    again = Desk(tmp_path / "store", clock)
    assert again.context.topics.get("orders") == TopicConfig("orders", 4, 4)
    again.close()


def test_a_deleted_topic_leaves_nothing(desk: Desk) -> None:
    for topic in ("orders", "payments"):
        desk.topic(topic)
        desk.put(topic)
        desk.context.offsets.commit(desk.group("billing"), topic, 0, 1)
        desk.context.stats.meter(TOPIC_PUT_NUMS, topic).total += 1
    assert desk.ask(DELETE, topic="orders").code == 0
    assert desk.context.topics.get("orders") is None
    assert desk.stored_topics() == {"payments"}
    assert desk.context.offsets.topics_of("billing") == ["payments"]
    assert desk.context.stats.find(TOPIC_PUT_NUMS, "orders") is None
    assert desk.context.stats.find(TOPIC_PUT_NUMS, "payments") is not None
    assert desk.announced == 1
    desk.topic("orders")
    assert desk.put("orders").queue_offset == 0


def test_a_deleted_topic_is_gone_after_a_restart(tmp_path: Path, clock: ManualClock) -> None:
    desk = Desk(tmp_path / "store", clock)
    desk.topic("orders")
    desk.put("orders")
    desk.context.offsets.commit("billing", "orders", 0, 1)
    desk.context.offsets.save()
    assert desk.ask(DELETE, topic="orders").code == 0
    desk.store.close()  # Nobody saves the tables once more, as after a crash.
    again = Desk(tmp_path / "store", clock)
    assert again.context.topics.get("orders") is None
    assert again.context.offsets.get("billing", "orders", 0) is None
    assert again.stored_topics() == set()
    again.close()


async def test_who_waits_for_messages_of_a_deleted_topic_waits_no_more(desk: Desk) -> None:
    desk.topic("orders", 1)
    desk.group("billing")
    async with serving(desk.handlers) as (_, address):
        consumer = await connect(str(address))
        fields = {
            "consumerGroup": "billing", "topic": "orders", "queueId": "0", "queueOffset": "0",
            "maxMsgNums": "1", "sysFlag": "6", "subscription": "*", "suspendTimeoutMillis": "15000",
        }  # fmt: skip
        pull = asyncio.create_task(consumer.request(Request(PULL, fields), 30))
        await until(lambda: len(desk.context.waiting_pulls) == 1)
        await desk.ask_later(DELETE, topic="orders")
        assert (await asyncio.wait_for(pull, 5)).code == ResponseCode.PULL_NOT_FOUND
        consumer.close()


def test_a_topic_that_is_not_there_counts_as_deleted(desk: Desk) -> None:
    assert desk.ask(DELETE, topic="nothing").code == 0


@pytest.mark.parametrize("name", ["TBW102", "SCHEDULE_TOPIC_XXXX", "DefaultCluster", "", "../x"])
def test_topics_of_the_system_and_impossible_ones_are_not_deleted(desk: Desk, name: str) -> None:
    count = len(desk.context.topics)
    assert desk.ask(DELETE, topic=name).code == ResponseCode.INVALID_PARAMETER
    assert len(desk.context.topics) == count


def test_queues_without_a_topic_are_cleaned_and_others_stay(desk: Desk) -> None:
    desk.topic("kept")
    for topic in ("kept", "stray", "rmq_sys_internal", "SCHEDULE_TOPIC_XXXX"):
        desk.put(topic)
    assert desk.ask(RequestCode.CLEAN_UNUSED_TOPIC).code == 0
    assert desk.stored_topics() == {"kept", "rmq_sys_internal", "SCHEDULE_TOPIC_XXXX"}


def test_all_topics_are_told_with_their_version(desk: Desk) -> None:
    desk.topic("orders", 4, attributes={"message.type": "NORMAL"})
    answer = desk.ask(
        RequestCode.GET_ALL_TOPIC_CONFIG, topicSeq=0, dataVersion="", maxTopicNum=2000
    )
    told = json_of(answer)
    table = told["topicConfigTable"]
    assert answer.fields == {"totalTopicNum": str(len(desk.context.topics))}
    assert table.keys() == {topic.topic_name for topic in desk.context.topics}
    assert table["orders"] == {
        "topicName": "orders", "readQueueNums": 4, "writeQueueNums": 4, "perm": 6, "order": False,
        "topicFilterType": "SINGLE_TAG", "topicSysFlag": 0,
        "attributes": {"message.type": "NORMAL"},
    }  # fmt: skip
    version = desk.context.topics.version
    assert told["dataVersion"] == {
        "stateVersion": 0, "timestamp": version.timestamp, "counter": version.counter,
    }  # fmt: skip


def test_topics_are_told_page_by_page(desk: Desk) -> None:
    seen: list[str] = []
    version = ""
    while True:
        answer = desk.ask(
            RequestCode.GET_ALL_TOPIC_CONFIG, topicSeq=len(seen), dataVersion=version, maxTopicNum=4
        )
        told = json_of(answer)
        seen += told["topicConfigTable"]
        version = str(told["dataVersion"]).replace("'", '"')
        if len(seen) >= int(answer.fields["totalTopicNum"]):
            break
    assert seen == sorted(topic.topic_name for topic in desk.context.topics)


def test_a_page_of_another_version_begins_anew() -> None:
    letters = list("badc")
    now = DataVersion(0, 5, 2)
    current, old = '{"stateVersion":0,"timestamp":5,"counter":2}', '{"timestamp":5,"counter":1}'
    assert page(letters, now, start=2, count=2, seen=current) == ["c", "d"]
    assert page(letters, now, start=2, count=2, seen=old) == ["a", "b"]
    assert page(letters, now, start=2, count=2, seen="no version") == ["a", "b"]
    assert page(letters, now, start=9, count=2, seen=current) == []
    assert page(letters, now, start=-1, count=2, seen=current) == ["a", "b"]
    assert page(letters, now, start=0, count=-1, seen=None) == []


def test_a_page_has_an_end_and_old_tools_get_everything() -> None:
    many = [f"{number:05}" for number in range(PAGE_MAX + 1)]
    assert len(page(many, DataVersion(), start=0, count=10_000, seen=None)) == PAGE_MAX
    assert page(many, DataVersion(), start=None, count=None, seen=None) == many


def test_one_topic_is_told_or_said_to_be_missing(desk: Desk) -> None:
    desk.topic("orders")
    told = json_of(desk.ask(RequestCode.GET_TOPIC_CONFIG, topic="orders", lo=True))
    assert (told["topicName"], told["readQueueNums"], told["perm"]) == ("orders", 2, 6)
    missing = desk.ask(RequestCode.GET_TOPIC_CONFIG, topic="nothing", lo=True)
    assert missing.code == ResponseCode.TOPIC_NOT_EXIST
    assert missing.remark == "No topic in this broker. topic: nothing"


def test_topics_of_the_system_are_listed(desk: Desk) -> None:
    desk.topic("orders")
    told = json_of(desk.ask(RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_BROKER))["topicList"]
    assert {"TBW102", "DefaultCluster", "broker-a", "TRANS_CHECK_MAX_TIME_TOPIC"} <= set(told)
    assert "orders" not in told
