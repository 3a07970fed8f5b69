"""Entries of queues as they are stored, and files that are cleaned away."""

import os

import pytest

from cometmq.broker.admin import queue_entries
from cometmq.protocol.codes import RequestCode, ResponseCode
from cometmq.protocol.java import string_hash
from tests.broker.desk import Desk, json_of

ENTRIES = RequestCode.QUERY_CONSUME_QUEUE
HOUR_S = 3600


def test_entries_of_a_queue_are_shown(desk: Desk) -> None:
    places = [desk.put("orders", 1, tag) for tag in ("A", "B", "C")]
    told = json_of(desk.ask(ENTRIES, topic="orders", queueId=1, index=1, count=5))
    assert (told["minQueueIndex"], told["maxQueueIndex"]) == (0, 3)
    assert told["queueData"] == [
        {
            "physicOffset": place.physical_offset,
            "physicSize": place.size,
            "tagsCode": string_hash(tag),
            "eval": False,
        }
        for place, tag in zip(places[1:], "BC", strict=True)
    ]
    assert "filterData" not in told


@pytest.mark.parametrize(
    ("index", "count", "expected"), [(0, 2, 2), (3, 5, 0), (99, 5, 0), (-5, 6, 1), (0, -1, 0)]
)
def test_entries_that_are_not_there_are_not_made_up(
    desk: Desk, index: int, count: int, expected: int
) -> None:
    for _ in range(3):
        desk.put("orders")
    told = json_of(desk.ask(ENTRIES, topic="orders", queueId=0, index=index, count=count))
    assert len(told["queueData"]) == expected
    assert told["maxQueueIndex"] == 3


def test_entries_are_shown_up_to_a_limit(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(queue_entries, "ENTRIES_MAX", 2)
    for _ in range(3):
        desk.put("orders")
    told = json_of(desk.ask(ENTRIES, topic="orders", queueId=0, index=0, count=3))
    assert len(told["queueData"]) == 2


def test_a_groups_subscription_stands_beside_the_entries(desk: Desk) -> None:
    desk.put("orders")
    asked = {"topic": "orders", "queueId": 0, "index": 0, "count": 1, "consumerGroup": "billing"}
    assert json_of(desk.ask(ENTRIES, **asked))["filterData"] == "billing@orders is not online!"
    desk.online("billing", "orders")
    told = json_of(desk.ask(ENTRIES, **asked))
    assert told["subscriptionData"]["topic"] == "orders"
    assert told["filterData"] == "null"


def test_a_queue_that_is_not_there_is_said_so(desk: Desk) -> None:
    refused = desk.ask(ENTRIES, topic="orders", queueId=9, index=0, count=1)
    assert refused.code == ResponseCode.SYSTEM_ERROR
    assert refused.remark == "9@orders is not exist!"


def fill_files(desk: Desk) -> None:
    """Several log and queue files, all but the last of each long out of date."""
    while desk.store.appended.value < 4 * desk.store.config.commit_log_file_bytes:
        desk.put("orders")
    long_ago = desk.clock.now_ms() // 1000 - 100 * HOUR_S
    for segment in desk.store.commit_log.segments:
        os.utime(segment.path, (long_ago, long_ago))


async def test_expired_log_files_and_what_points_to_them_go(desk: Desk) -> None:
    fill_files(desk)
    log_files = len(desk.store.commit_log.segments)
    answer = await desk.ask_later(RequestCode.DELETE_EXPIRED_COMMITLOG)
    assert answer.code == 0
    assert 1 <= len(desk.store.commit_log.segments) < log_files
    assert desk.store.min_offset("orders", 0) > 0
    assert desk.put("orders").queue_offset == desk.store.max_offset("orders", 0) - 1


async def test_queue_files_without_messages_go_and_others_stay(desk: Desk) -> None:
    fill_files(desk)
    answer = await desk.ask_later(RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE)
    assert answer.code == 0
    assert desk.store.min_offset("orders", 0) == 0
    # As after somebody else took log files away.
    desk.store.commit_log.segments.remove_first()
    await desk.ask_later(RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE)
    first = desk.store.min_offset("orders", 0)
    assert first > 0
    assert desk.store.store_time("orders", 0, first) is not None
    assert desk.store.store_time("orders", 0, first - 1) is None
    assert desk.store.store_time("orders", 0, desk.store.max_offset("orders", 0)) is None
