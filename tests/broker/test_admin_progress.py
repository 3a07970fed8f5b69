"""How far topics and groups have come, as mqadmin 5.5.0 asks for it."""

import pytest

from cometmq.broker.stats import GROUP_GET_NUMS, TOPIC_PUT_NUMS
from cometmq.protocol.codes import RequestCode, ResponseCode
from cometmq.protocol.topic_config import TopicConfig
from tests.broker.desk import Desk, body_of, json_of, queues_of

TOPIC_STATS = RequestCode.GET_TOPIC_STATS_INFO
CONSUME_STATS = RequestCode.GET_CONSUME_STATS
BROKER_STATS = RequestCode.GET_BROKER_CONSUME_STATS


@pytest.fixture
def start_ms(desk: Desk) -> int:
    """When the shop opened: three orders in queue 0, one in queue 1, a second apart; the group has
    consumed two of the former and pulled all three."""
    opened_ms = desk.clock.now_ms()
    desk.topic("orders")
    for queue_id in (0, 0, 0, 1):
        desk.put("orders", queue_id)
    desk.group("billing")
    desk.context.offsets.commit("billing", "orders", 0, 2)
    desk.context.offsets.pulled("billing", "orders", 0, 3)
    return opened_ms


def progress(end: int, consumed: int, pulled: int, time_ms: int) -> dict[str, int]:
    return {
        "brokerOffset": end,
        "consumerOffset": consumed,
        "pullOffset": pulled,
        "lastTimestamp": time_ms,
    }


def test_a_topics_stats_have_ends_and_times_of_all_queues(desk: Desk, start_ms: int) -> None:
    desk.topic("orders", 3)
    desk.context.stats.meter(TOPIC_PUT_NUMS, "orders").total += 40
    told = queues_of(desk.ask(TOPIC_STATS, topic="orders"))
    assert told["offsetTable"] == {
        "orders:0": {"minOffset": 0, "maxOffset": 3, "lastUpdateTimestamp": start_ms + 3000},
        "orders:1": {"minOffset": 0, "maxOffset": 1, "lastUpdateTimestamp": start_ms + 4000},
        "orders:2": {"minOffset": 0, "maxOffset": 0, "lastUpdateTimestamp": 0},
    }
    assert told["topicPutTps"] == 4.0


def test_the_body_has_bare_objects_as_keys(desk: Desk) -> None:
    desk.topic("empty", 1)
    body = body_of(desk.ask(TOPIC_STATS, topic="empty"))
    assert body.startswith(
        b'{"offsetTable":{{"topic":"empty","brokerName":"broker-a","queueId":0}:'
    )


def test_a_group_is_somewhere_in_every_queue(desk: Desk, start_ms: int) -> None:
    desk.context.stats.meter(GROUP_GET_NUMS, "orders@billing").total += 30
    told = queues_of(desk.ask(CONSUME_STATS, consumerGroup="billing"))
    assert told["offsetTable"] == {
        "orders:0": progress(3, 2, 3, start_ms + 2000),
        "orders:1": progress(1, 0, 0, 0),
    }
    assert told["consumeTps"] == 3.0


def test_what_was_pulled_is_never_behind_what_was_consumed(desk: Desk, start_ms: int) -> None:
    desk.context.offsets.commit("billing", "orders", 1, 1)
    told = queues_of(desk.ask(CONSUME_STATS, consumerGroup="billing", topic="orders"))
    assert told["offsetTable"]["orders:1"] == progress(1, 1, 1, start_ms + 4000)


def test_a_reset_counts_before_the_group_knows_of_it(desk: Desk, start_ms: int) -> None:
    desk.context.offsets.reset("billing", "orders", 0, 1)
    told = queues_of(desk.ask(CONSUME_STATS, consumerGroup="billing"))
    assert told["offsetTable"]["orders:0"] == progress(3, 1, 3, start_ms + 1000)


def test_topics_that_an_online_group_left_are_left_out(desk: Desk, start_ms: int) -> None:
    desk.topic("old", 1)
    desk.context.offsets.commit("billing", "old", 0, 0)
    assert "old:0" in queues_of(desk.ask(CONSUME_STATS, consumerGroup="billing"))["offsetTable"]
    desk.online("billing", "orders")
    for asked in ({}, {"topic": "old"}):
        told = queues_of(desk.ask(CONSUME_STATS, consumerGroup="billing", **asked))
        assert "old:0" not in told["offsetTable"]
    both = queues_of(desk.ask(CONSUME_STATS, consumerGroup="billing", topicList="old;orders;"))
    assert both["offsetTable"].keys() == {"old:0", "orders:0", "orders:1"}


def test_a_group_that_nobody_knows_is_nowhere(desk: Desk, start_ms: int) -> None:
    told = queues_of(desk.ask(CONSUME_STATS, consumerGroup="nobody"))
    assert told == {"consumeTps": 0.0, "offsetTable": {}}


async def test_all_groups_of_a_broker_with_their_lag(desk: Desk, start_ms: int) -> None:
    told = queues_of(await desk.ask_later(BROKER_STATS, isOrder=False))
    groups = {name: stats for each in told["consumeStatsList"] for name, stats in each.items()}
    assert groups["billing"] == [
        {
            "consumeTps": 0.0,
            "offsetTable": {
                "orders:0": progress(3, 2, 3, start_ms + 2000),
                "orders:1": progress(1, 0, 0, 0),
            },
        }
    ]
    assert groups["TOOLS_CONSUMER"] == []
    assert told["brokerAddr"] == "127.0.0.1:10911"
    assert (told["totalDiff"], told["totalInflightDiff"]) == (2, 1)


async def test_queues_that_are_only_written_count_for_a_broker(desk: Desk, start_ms: int) -> None:
    desk.context.topics.update(TopicConfig("orders", 1, 2))
    assert queues_of(await desk.ask_later(BROKER_STATS, isOrder=False))["totalDiff"] == 2
    told = queues_of(await desk.ask_later(CONSUME_STATS, consumerGroup="billing"))
    assert told["offsetTable"].keys() == {"orders:0"}


async def test_ordered_topics_can_be_asked_for_alone(desk: Desk, start_ms: int) -> None:
    assert queues_of(await desk.ask_later(BROKER_STATS, isOrder=True))["totalDiff"] == 0
    desk.topic("orders", order=True)
    assert queues_of(await desk.ask_later(BROKER_STATS, isOrder=True))["totalDiff"] == 2


def test_the_time_span_of_a_topic_and_where_a_group_is_in_it(desk: Desk, start_ms: int) -> None:
    desk.topic("orders", 3)
    asked = {"topic": "orders", "group": "billing"}
    spans = json_of(desk.ask(RequestCode.QUERY_CONSUME_TIME_SPAN, **asked))["consumeTimeSpanSet"]
    first, second, third = (
        {key: value for key, value in span.items() if key != "messageQueue"} for span in spans
    )
    assert first == {
        "minTimeStamp": start_ms + 1000,
        "maxTimeStamp": start_ms + 3000,
        "consumeTimeStamp": start_ms + 2000,
        "delayTime": 1000,
    }
    assert (second["consumeTimeStamp"], second["delayTime"]) == (start_ms + 4000, 0)
    assert third == {
        "minTimeStamp": -1, "maxTimeStamp": -1, "consumeTimeStamp": -1, "delayTime": 0,
    }  # fmt: skip
    assert spans[1]["messageQueue"] == {"topic": "orders", "brokerName": "broker-a", "queueId": 1}


@pytest.mark.parametrize("code", [TOPIC_STATS, RequestCode.QUERY_CONSUME_TIME_SPAN])
def test_a_topic_that_is_not_there_is_said_so(desk: Desk, code: RequestCode) -> None:
    refused = desk.ask(code, topic="nothing", group="billing")
    assert refused.code == ResponseCode.TOPIC_NOT_EXIST
    assert refused.remark == "topic[nothing] not exist"
