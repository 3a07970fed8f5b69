"""Numbers that a broker tells about itself."""

import re

from cometmq.broker.stats import SAMPLE_INTERVAL_MS, TOPIC_PUT_NUMS
from cometmq.protocol.codes import RequestCode, ResponseCode
from cometmq.protocol.message import Message
from tests.broker.desk import Desk, json_of

DAY_MS = 86_400_000
KEYS = """
EndTransactionQueueSize EndTransactionThreadPoolQueueCapacity ackThreadPoolQueueCapacity
ackThreadPoolQueueHeadWaitTimeMills ackThreadPoolQueueSize bootTimestamp brokerActive brokerVersion
brokerVersionDesc commitLogDirCapacity commitLogDiskRatio commitLogMaxOffset commitLogMinOffset
consumeQueueDiskRatio dispatchBehindBytes dispatchMaxBuffer earliestMessageTimeStamp getFoundTps
getMessageEntireTimeMax getMissTps getTotalTps getTransferredTps litePullThreadPoolQueueCapacity
litePullThreadPoolQueueHeadWaitTimeMills litePullThreadPoolQueueSize msgGetTotalTodayMorning
msgGetTotalTodayNow msgGetTotalYesterdayMorning msgPutTotalTodayMorning msgPutTotalTodayNow
msgPutTotalYesterdayMorning pageCacheLockTimeMills pullThreadPoolQueueCapacity
pullThreadPoolQueueHeadWaitTimeMills pullThreadPoolQueueSize putLatency99 putLatency999
putMessageAverageSize putMessageDistributeTime putMessageEntireTimeMax putMessageFailedTimes
putMessageSizeTotal putMessageTimesTotal putTps queryThreadPoolQueueCapacity
queryThreadPoolQueueHeadWaitTimeMills queryThreadPoolQueueSize remainHowManyDataToCommit
remainHowManyDataToFlush remainTransientStoreBufferNumbs runtime sendThreadPoolQueueCapacity
sendThreadPoolQueueHeadWaitTimeMills sendThreadPoolQueueSize startAcceptSendRequestTimeStamp
timerCongestNum timerDequeueTps timerEnqueueTps timerOffsetBehind timerReadBehind
"""


def table(desk: Desk) -> dict[str, str]:
    told: dict[str, str] = json_of(desk.ask(RequestCode.GET_BROKER_RUNTIME_INFO))["table"]
    assert all(isinstance(value, str) for value in told.values())
    return told


def test_every_figure_that_tools_know_is_there(desk: Desk) -> None:
    told = table(desk)
    assert not set(KEYS.split()) - told.keys()
    assert told["brokerActive"] == "true"
    assert told["brokerVersionDesc"] == "V5_5_0"
    assert told["earliestMessageTimeStamp"] == "-1"


def test_the_logs_figures_are_those_of_the_store(desk: Desk) -> None:
    desk.topic("orders")
    first_ms = desk.clock.now_ms() + 1000
    place = [desk.put("orders") for _ in range(3)][-1]
    told = table(desk)
    assert told["commitLogMinOffset"] == "0"
    assert told["commitLogMaxOffset"] == str(place.end)
    assert told["earliestMessageTimeStamp"] == str(first_ms)
    assert told["dispatchBehindBytes"] == "0"
    assert 0 < float(told["commitLogDiskRatio"]) <= 1
    assert (
        told[f"commitLogDiskRatio_{desk.store.config.root}/commitlog"] == told["commitLogDiskRatio"]
    )
    assert re.fullmatch(
        r"Total : [\d.]+ [KMGTP]?i?B, Free : [\d.]+ [KMGTP]?i?B\.", told["commitLogDirCapacity"]
    )


def test_what_waits_for_the_disk_is_told_in_bytes(desk: Desk) -> None:
    desk.store.flushed.reset(0)
    desk.topic("orders")
    for _ in range(20):
        desk.put("orders")
    end = desk.store.appended.value
    desk.store.flushed.reset(end - 1536)
    assert table(desk)["remainHowManyDataToFlush"] == "1.5 KiB"
    desk.store.flushed.reset(end - 1023)
    assert table(desk)["remainHowManyDataToFlush"] == "1023 B"
    desk.store.flushed.reset(end)


def test_what_is_not_dispatched_yet_and_who_waits_are_told(desk: Desk) -> None:
    place = desk.store.append(Message("orders", 0, b"hello"))
    desk.inbox.waiting = 4
    told = table(desk)
    assert told["dispatchBehindBytes"] == str(place.size)
    assert told["sendThreadPoolQueueSize"] == "4"
    assert told["sendThreadPoolQueueCapacity"] == "10000"


def test_rates_and_totals_of_what_went_through(desk: Desk) -> None:
    stats = desk.context.stats
    stats.put.total, stats.put_bytes.total, stats.put_failed.total = 600, 60_000, 3
    stats.got.total, stats.pulls_found.total, stats.pulls_missed.total = 1200, 60, 30
    desk.clock.advance(10_000)
    told = table(desk)
    # The broker began to count ten seconds before its first sample.
    assert told["putTps"] == "30.0 30.0 30.0"
    assert told["getTransferredTps"] == "60.0 60.0 60.0"
    assert told["getTotalTps"] == "4.5 4.5 4.5"
    assert told["putMessageTimesTotal"] == told["msgPutTotalTodayNow"] == "600"
    assert told["putMessageAverageSize"] == "100.0"
    assert told["putMessageFailedTimes"] == "3"
    assert told["msgGetTotalTodayNow"] == "1200"


def test_rates_are_of_different_times(desk: Desk) -> None:
    meter = desk.context.stats.put
    for number in range(61):
        desk.clock.advance(SAMPLE_INTERVAL_MS)
        meter.total += 100 if number < 55 else 0
        desk.context.stats.sample(desk.clock.now_ms())
    ten_seconds, one_minute, ten_minutes = map(float, table(desk)["putTps"].split(" "))
    assert ten_seconds == 0
    assert one_minute < 2
    assert ten_minutes > 8


def test_messages_are_counted_by_days(desk: Desk) -> None:
    stats = desk.context.stats
    for total in (10, 30, 60):
        stats.put.total, stats.got.total = total, 2 * total
        desk.clock.advance(DAY_MS)
        stats.sample(desk.clock.now_ms())
    told = table(desk)
    assert (told["msgPutTotalYesterdayMorning"], told["msgPutTotalTodayMorning"]) == ("30", "60")
    assert (told["msgGetTotalYesterdayMorning"], told["msgGetTotalTodayMorning"]) == ("60", "120")


def test_the_first_day_began_with_nothing(desk: Desk) -> None:
    desk.context.stats.put.total = 5
    desk.context.stats.sample(desk.clock.now_ms() + 10_000)
    told = table(desk)
    assert (told["msgPutTotalYesterdayMorning"], told["msgPutTotalTodayMorning"]) == ("0", "0")


def test_the_time_since_the_start_is_told_in_words(desk: Desk) -> None:
    desk.clock.advance(2 * DAY_MS + 3 * 3_600_000 + 4 * 60_000 + 5_999)
    assert table(desk)["runtime"] == "[ 2 days, 3 hours, 4 minutes, 5 seconds ]"


def test_delays_tell_how_far_their_delivery_is(desk: Desk) -> None:
    for _ in range(3):
        desk.put("SCHEDULE_TOPIC_XXXX", 2)
    told = table(desk)
    assert told["scheduleMessageOffset_3"] == "0,3"
    assert "scheduleMessageOffset_1" not in told


def stats_of(desk: Desk, name: str, key: str) -> dict[str, dict[str, float]]:
    answer = desk.ask(RequestCode.VIEW_BROKER_STATS_DATA, statsName=name, statsKey=key)
    told: dict[str, dict[str, float]] = json_of(answer)
    return told


def test_figures_of_a_topic_over_minute_hour_and_day(desk: Desk) -> None:
    meter = desk.context.stats.meter(TOPIC_PUT_NUMS, "orders")
    meter.total += 30
    just_made = stats_of(desk, TOPIC_PUT_NUMS, "orders")
    assert just_made["statsMinute"] == {"sum": 30, "tps": 3.0, "avgpt": 0.0}
    for _ in range(12):
        desk.clock.advance(SAMPLE_INTERVAL_MS)
        desk.context.stats.sample(desk.clock.now_ms())
    later = stats_of(desk, TOPIC_PUT_NUMS, "orders")
    assert later["statsMinute"]["sum"] == 0
    assert later["statsHour"]["sum"] == later["statsDay"]["sum"] == 30


def test_figures_of_the_whole_broker_go_by_the_clusters_name(desk: Desk) -> None:
    desk.context.stats.put.total = 7
    told = stats_of(desk, "BROKER_PUT_NUMS", "DefaultCluster")
    assert told["statsDay"]["sum"] == 7


def test_a_figure_that_is_not_there_is_said_so(desk: Desk) -> None:
    asked = {"statsName": TOPIC_PUT_NUMS, "statsKey": "nothing"}
    refused = desk.ask(RequestCode.VIEW_BROKER_STATS_DATA, **asked)
    assert refused.code == ResponseCode.SYSTEM_ERROR
    assert refused.remark == "The stats <TOPIC_PUT_NUMS> <nothing> not exist"
