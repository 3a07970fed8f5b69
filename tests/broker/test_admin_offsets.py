"""Offsets that an operator moves."""

import asyncio
import json
from pathlib import Path

import pytest

from cometmq.protocol.codes import RequestCode, ResponseCode
from cometmq.protocol.command import Request
from cometmq.protocol.scan import queue_key
from cometmq.testing.clock import ManualClock
from cometmq.transport.dial import connect
from tests.broker.desk import Desk, json_of, queues_of
from tests.transport.peers import serving, until

RESET = RequestCode.INVOKE_BROKER_TO_RESET_OFFSET
CLONE = RequestCode.CLONE_GROUP_OFFSET
CORRECTION = RequestCode.QUERY_CORRECTION_OFFSET
END_OF_JAVA = 9223372036854775807


@pytest.fixture
def start_ms(desk: Desk) -> int:
    """When the shop opened: three orders in queue 0, one in queue 1, a second apart; the group
    has consumed two of the former."""
    opened_ms = desk.clock.now_ms()
    desk.topic("orders")
    for queue_id in (0, 0, 0, 1):
        desk.put("orders", queue_id)
    desk.context.offsets.commit(desk.group("billing"), "orders", 0, 2)
    return opened_ms


def asked(timestamp: int, **changes: object) -> dict[str, object]:
    """Fields of `resetOffsetByTime`, as captured."""
    return {
        "group": "billing", "topic": "orders", "timestamp": timestamp, "queueId": -1, "offset": -1,
        "isForce": True, **changes,
    }  # fmt: skip


@pytest.mark.parametrize("force", [True, False])
@pytest.mark.parametrize(
    ("after_ms", "expected"),
    [(0, [0, 0]), (1000, [0, 0]), (1001, [1, 0]), (3000, [2, 0]), (3500, [3, 0]), (9000, [3, 1])],
)
def test_a_group_goes_on_at_a_time_forth_or_back(
    desk: Desk, start_ms: int, after_ms: int, expected: list[int], *, force: bool
) -> None:
    told = queues_of(desk.ask(RESET, **asked(start_ms + after_ms, isForce=force)))
    assert told == {"offsetTable": {"orders:0": expected[0], "orders:1": expected[1]}}
    offsets = desk.context.offsets
    assert [offsets.get("billing", "orders", queue) for queue in (0, 1)] == expected


def test_a_negative_time_is_the_end(desk: Desk, start_ms: int) -> None:
    told = queues_of(desk.ask(RESET, **asked(-1)))
    assert told == {"offsetTable": {"orders:0": 3, "orders:1": 1}}


def test_one_queue_can_be_moved_alone(desk: Desk, start_ms: int) -> None:
    told = queues_of(desk.ask(RESET, **asked(-1, queueId=0, offset=1)))
    assert told == {"offsetTable": {"orders:0": 1}}
    told = queues_of(desk.ask(RESET, **asked(start_ms, queueId=0)))
    assert told == {"offsetTable": {"orders:0": 0}}
    assert desk.context.offsets.get("billing", "orders", 1) is None


@pytest.mark.parametrize(
    ("changes", "code", "said"),
    [
        ({"topic": "nothing"}, ResponseCode.TOPIC_NOT_EXIST, "Topic nothing does not exist"),
        ({"group": "nobody"}, ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, "Group nobody does not"),
        ({"queueId": 0, "offset": 4}, ResponseCode.SYSTEM_ERROR, "4 not in consume queue range"),
        ({"queueId": 0, "offset": -2}, ResponseCode.SYSTEM_ERROR, "-2 not in consume queue range"),
        ({"queueId": 2}, ResponseCode.SYSTEM_ERROR, "queue 2: orders has 2 queues"),
    ],
)  # fmt: skip
def test_a_place_that_is_not_there_is_refused(
    desk: Desk, start_ms: int, changes: dict[str, object], code: int, said: str
) -> None:
    refused = desk.ask(RESET, **asked(0, **changes))
    assert refused.code == code
    assert said in (refused.remark or "")
    assert desk.context.offsets.get("billing", "orders", 0) == 2


def test_a_reset_outlives_a_restart_and_what_the_group_says(
    tmp_path: Path, clock: ManualClock
) -> None:
    desk = Desk(tmp_path / "store", clock)
    desk.topic("orders")
    desk.put("orders")
    desk.context.offsets.commit(desk.group("billing"), "orders", 0, 1)
    desk.context.groups.save()
    assert desk.ask(RESET, **asked(0)).code == 0
    desk.store.close()  # Nobody saves the tables once more, as after a crash.
    again = Desk(tmp_path / "store", clock)
    again.context.offsets.commit("billing", "orders", 0, 1)
    assert again.context.offsets.get("billing", "orders", 0) == 0
    again.close()


async def test_a_pull_that_waits_hears_of_a_reset_at_once_and_others_wait_on(desk: Desk) -> None:
    desk.topic("orders", 1)
    desk.put("orders")
    async with serving(desk.handlers) as (_, address):
        consumer = await connect(str(address))
        groups = ("billing", "archive")
        pulls = [asyncio.create_task(consumer.request(pull(group), 30)) for group in groups]
        await until(lambda: len(desk.context.waiting_pulls) == 2)
        assert (await desk.ask_later(RESET, **asked(0))).code == 0
        moved = await asyncio.wait_for(pulls[0], 5)
        assert moved.code == ResponseCode.PULL_OFFSET_MOVED
        assert moved.text_fields()["nextBeginOffset"] == "0"
        assert len(desk.context.waiting_pulls) == 1
        assert not pulls[1].done()
        desk.context.waiting_pulls.stop()
        assert (await asyncio.wait_for(pulls[1], 5)).code == ResponseCode.PULL_NOT_FOUND
        consumer.close()


def pull(group: str) -> Request:
    fields = {
        "consumerGroup": group, "topic": "orders", "queueId": "0", "queueOffset": "1",
        "maxMsgNums": "32", "sysFlag": "6", "subscription": "*", "suspendTimeoutMillis": "15000",
    }  # fmt: skip
    return Request(RequestCode.PULL_MESSAGE, fields)


def test_a_group_gets_the_offsets_of_another(desk: Desk, start_ms: int) -> None:
    desk.context.offsets.commit("billing", "gone", 0, 9)
    desk.context.offsets.commit("clone", "orders", 1, 7)
    assert desk.ask(CLONE, srcGroup="billing", destGroup="clone", offline=True).code == 0
    assert desk.context.offsets.queues_of("clone", "orders") == {0: 2}
    assert desk.context.offsets.topics_of("clone") == ["orders"]
    desk.context.offsets.commit("clone", "orders", 0, 3)
    assert desk.context.offsets.get("billing", "orders", 0) == 2


def test_offsets_are_cloned_by_topic_and_by_what_an_online_group_wants(
    desk: Desk, start_ms: int
) -> None:
    desk.topic("old")
    desk.context.offsets.commit("billing", "old", 0, 1)
    desk.online("billing", "orders")
    desk.ask(CLONE, srcGroup="billing", destGroup="one", offline=False)
    desk.ask(CLONE, srcGroup="billing", destGroup="two", offline=True)
    desk.ask(CLONE, srcGroup="billing", destGroup="three", offline=True, topic="old")
    found = [sorted(desk.context.offsets.topics_of(group)) for group in ("one", "two", "three")]
    assert found == [["orders"], ["old", "orders"], ["old"]]


def test_the_least_offsets_of_all_groups_but_some(desk: Desk, start_ms: int) -> None:
    for group, offset in (("archive", 1), ("behind", 0)):
        desk.context.offsets.commit(group, "orders", 0, offset)

    def least(compared: str, left_out: str = "") -> dict[str, int]:
        answer = desk.ask(CORRECTION, compareGroup=compared, topic="orders", filterGroups=left_out)
        table: dict[str, int] = json_of(answer)["correctionOffsets"]
        return table

    assert least("billing") == {"0": 0}
    assert least("billing", "behind") == {"0": 1}
    assert least("behind") == {"0": 0}
    assert least("behind", "behind,archive") == {"0": END_OF_JAVA}
    assert desk.context.offsets.get("behind", "orders", 0) == 0


def test_offsets_of_messages_that_are_gone_do_not_count(desk: Desk, start_ms: int) -> None:
    queue = desk.store.queues.get(queue_key("orders", 0))
    assert queue is not None
    queue.min_offset = 2
    desk.context.offsets.commit("archive", "orders", 0, 1)
    told = json_of(desk.ask(CORRECTION, compareGroup="nobody", topic="orders"))
    assert told == {"correctionOffsets": {"0": 2}}


def test_cloned_offsets_are_there_after_a_restart(tmp_path: Path, clock: ManualClock) -> None:
    desk = Desk(tmp_path / "store", clock)
    desk.topic("orders")
    desk.context.offsets.commit("billing", "orders", 0, 1)
    desk.ask(CLONE, srcGroup="billing", destGroup="clone", topic="orders")
    desk.store.close()  # Nobody saves the tables once more, as after a crash.
    again = Desk(tmp_path / "store", clock)
    assert again.context.offsets.get("clone", "orders", 0) == 1
    again.close()


def test_progress_of_delays_is_told(desk: Desk) -> None:
    told = json_of(desk.ask(RequestCode.GET_ALL_DELAY_OFFSET))
    assert told["offsetTable"] == {}
    assert told["dataVersion"].keys() == {"stateVersion", "timestamp", "counter"}


def test_offsets_are_whole_numbers_in_the_answer(desk: Desk, start_ms: int) -> None:
    body = desk.ask(RESET, **asked(-1, queueId=0)).body
    assert isinstance(body, bytes)
    queue = json.loads(body.removeprefix(b'{"offsetTable":{').partition(b":3}}")[0])
    assert queue == {"topic": "orders", "brokerName": "broker-a", "queueId": 0}
