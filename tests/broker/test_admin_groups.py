"""Requests about consumer groups, as mqadmin 5.5.0 sends them."""

from pathlib import Path
from typing import Any

import pytest

from cometmq.broker.stats import GROUP_GET_NUMS
from cometmq.protocol.codes import RequestCode, ResponseCode
from cometmq.testing.clock import ManualClock
from tests.broker.desk import Desk, json_of

CREATE = RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP
CREATE_LIST = RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST
GET_ALL = RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG
FORBIDDEN = RequestCode.UPDATE_AND_GET_GROUP_FORBIDDEN


def wanted(name: str, **changes: object) -> dict[str, object]:
    """The body of `updateSubGroup`, as captured."""
    return {
        "groupName": name, "attributes": {}, "brokerId": 0, "consumeBroadcastEnable": True,
        "consumeEnable": True, "consumeFromMinEnable": False, "consumeMessageOrderly": False,
        "consumeTimeoutMinute": 15, "groupRetryPolicy": {"type": "CUSTOMIZED"}, "groupSysFlag": 0,
        "notifyConsumerIdsChangedEnable": True, "retryMaxTimes": 7, "retryQueueNums": 2,
        "whichBrokerWhenConsumeSlowly": 1, **changes,
    }  # fmt: skip


def test_a_group_is_made_and_later_changed(desk: Desk) -> None:
    assert desk.ask(CREATE, wanted("billing")).code == 0
    made = desk.context.groups.get("billing")
    assert made is not None
    assert (made.retry_max_times, made.retry_queue_nums, made.consume_enable) == (7, 2, True)
    assert desk.ask(CREATE, wanted("billing", consumeEnable=False)).code == 0
    changed = desk.context.groups.get("billing")
    assert changed is not None
    assert not changed.consume_enable


def test_groups_of_a_list_are_made_together(desk: Desk) -> None:
    groups = [wanted("one", retryMaxTimes=3), wanted("two")]
    assert desk.ask(CREATE_LIST, {"groupConfigList": groups}).code == 0
    found = [desk.context.groups.get(name) for name in ("one", "two")]
    assert [group.retry_max_times if group else None for group in found] == [3, 7]


@pytest.mark.parametrize(
    "wrong", [{"groupName": "bad group"}, {"groupName": ""}, {"attributes": {"+colour": "red"}}]
)
def test_a_list_with_one_wrong_group_makes_none(desk: Desk, wrong: dict[str, Any]) -> None:
    groups = [wanted("one"), wanted("two") | wrong]
    refused = desk.ask(CREATE_LIST, {"groupConfigList": groups})
    assert refused.code == ResponseCode.INVALID_PARAMETER
    assert desk.context.groups.get("one") is None


def test_a_body_that_is_no_group_is_refused(desk: Desk) -> None:
    for body in (b"", b"[]", b'{"groupName":1'):
        refused = desk.ask(CREATE, body)
        assert refused.code == ResponseCode.SYSTEM_ERROR
        assert "the body of request 200" in (refused.remark or "")


def test_a_deleted_group_keeps_its_offsets_unless_asked(desk: Desk) -> None:
    for name in ("one", "two"):
        desk.ask(CREATE, wanted(name))
        desk.context.offsets.commit(name, "orders", 0, 5)
        desk.context.stats.meter(GROUP_GET_NUMS, f"orders@{name}").total += 1
    delete = RequestCode.DELETE_SUBSCRIPTIONGROUP
    assert desk.ask(delete, groupName="one", cleanOffset=False).code == 0
    assert desk.ask(delete, groupName="two", cleanOffset=True).code == 0
    for name in ("one", "two"):
        assert desk.context.groups.get(name) is None
        assert desk.context.stats.find(GROUP_GET_NUMS, f"orders@{name}") is None
    assert desk.context.offsets.get("one", "orders", 0) == 5
    assert desk.context.offsets.get("two", "orders", 0) is None
    assert desk.ask(delete, groupName="nobody", cleanOffset=True).code == 0


def test_changes_of_groups_are_there_after_a_restart(tmp_path: Path, clock: ManualClock) -> None:
    desk = Desk(tmp_path / "store", clock)
    desk.ask(CREATE, wanted("kept"))
    desk.ask(CREATE, wanted("gone"))
    desk.context.offsets.commit("gone", "orders", 0, 5)
    desk.context.offsets.save()
    desk.ask(RequestCode.DELETE_SUBSCRIPTIONGROUP, groupName="gone", cleanOffset=True)
    desk.ask(FORBIDDEN, group="kept", topic="orders", readable=False)
    desk.store.close()  # Nobody saves the tables once more, as after a crash.
    again = Desk(tmp_path / "store", clock)
    assert again.context.groups.get("kept") is not None
    assert again.context.groups.get("gone") is None
    assert again.context.offsets.get("gone", "orders", 0) is None
    assert not again.context.groups.may_read("kept", "orders")
    again.close()


def test_a_group_is_kept_from_one_topic_and_let_in_again(desk: Desk) -> None:
    desk.topic("orders")
    desk.topic("payments")
    desk.group("billing")

    def pull(topic: str) -> tuple[int, str | None]:
        answer = desk.ask(
            RequestCode.PULL_MESSAGE, consumerGroup="billing", topic=topic, queueId=0,
            queueOffset=0, maxMsgNums=1, sysFlag=4, subscription="*",
        )  # fmt: skip
        return answer.code, answer.fields.get("forbiddenType")

    told = json_of(desk.ask(FORBIDDEN, group="billing", topic="orders", readable=False))
    assert told == {"group": "billing", "topic": "orders", "readable": False}
    assert pull("orders") == (ResponseCode.NO_PERMISSION, "5")
    assert pull("payments") == (ResponseCode.PULL_NOT_FOUND, None)
    assert json_of(desk.ask(FORBIDDEN, group="billing", topic="orders")) == told
    told = json_of(desk.ask(FORBIDDEN, group="billing", topic="orders", readable=True))
    assert told["readable"] is True
    assert pull("orders") == (ResponseCode.PULL_NOT_FOUND, None)
    assert desk.context.groups.content().forbidden_table == {}


def test_what_else_a_group_is_forbidden_stays(desk: Desk) -> None:
    desk.context.groups.content().forbidden_table["billing"] = {"orders": 6}
    assert not desk.context.groups.may_read("billing", "orders")
    desk.ask(FORBIDDEN, group="billing", topic="orders", readable=True)
    assert desk.context.groups.may_read("billing", "orders")
    assert desk.context.groups.content().forbidden_table == {"billing": {"orders": 2}}


def test_all_groups_are_told_with_what_is_forbidden_to_them(desk: Desk) -> None:
    desk.ask(CREATE, wanted("billing"))
    desk.ask(FORBIDDEN, group="billing", topic="orders", readable=False)
    answer = desk.ask(GET_ALL, dataVersion="", maxGroupNum=2000, groupSeq=0)
    told = json_of(answer)
    table = told["subscriptionGroupTable"]
    assert answer.fields == {"totalGroupNum": str(len(table))}
    assert {"billing", "TOOLS_CONSUMER", "CID_RMQ_SYS_TRANS"} <= table.keys()
    assert table["billing"] | wanted("billing") == table["billing"]
    assert told["forbiddenTable"] == {"billing": {"orders": 4}}
    assert told["dataVersion"]["counter"] == desk.context.groups.version.counter


def test_groups_are_told_page_by_page(desk: Desk) -> None:
    desk.ask(CREATE, wanted("billing"))
    desk.ask(FORBIDDEN, group="billing", topic="orders", readable=False)
    first = json_of(desk.ask(GET_ALL, groupSeq=0, maxGroupNum=3, dataVersion=""))
    assert len(first["subscriptionGroupTable"]) == 3
    assert first["forbiddenTable"] == {}


def test_one_group_is_told_and_a_question_makes_none(desk: Desk) -> None:
    desk.ask(CREATE, wanted("billing"))
    get = RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG
    assert json_of(desk.ask(get, group="billing"))["retryMaxTimes"] == 7
    assert desk.ask(get, group="nobody").code == ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST
    assert desk.context.groups.get("nobody") is None
