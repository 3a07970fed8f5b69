"""Settings of a running broker: what is told, what can be changed, and what the change does."""

import pytest

from cometmq.protocol.codes import RequestCode, ResponseCode
from cometmq.settings import parse_properties
from tests.broker.desk import Desk, body_of

UPDATE = RequestCode.UPDATE_BROKER_CONFIG
SHOW = RequestCode.GET_BROKER_CONFIG


def shown(desk: Desk) -> dict[str, str]:
    return parse_properties(body_of(desk.ask(SHOW)).decode())


def test_all_settings_are_shown_under_their_keys_in_order(desk: Desk) -> None:
    lines = body_of(desk.ask(SHOW)).decode().splitlines()
    assert lines == sorted(lines)
    settings = shown(desk)
    wanted = {
        "brokerName": "broker-a", "brokerRole": "ASYNC_MASTER", "fileReservedTime": "72",
        "flushDiskType": "ASYNC_FLUSH", "longPollingEnable": "true", "listenPort": "10911",
    }  # fmt: skip
    assert settings | wanted == settings
    assert int(settings["clientCallbackExecutorThreads"]) > 0


def test_passwords_are_not_shown(desk: Desk) -> None:
    assert "tls.server.keyPath" in shown(desk)
    assert "tls.server.keyPassword" not in shown(desk)


def test_a_change_takes_effect_and_makes_a_new_version(desk: Desk) -> None:
    before = desk.ask(SHOW).fields["version"]
    body = b"fileReservedTime=71\nautoCreateTopicEnable=false\npullThreadPoolQueueCapacity=5\n"
    assert desk.ask(UPDATE, body).code == 0
    assert desk.store.config.reserved_hours == 71
    assert desk.context.waiting_pulls.held_max == 5
    assert desk.context.topics.create_for_send("new", "TBW102", 4) is None
    after = desk.ask(SHOW).fields["version"]
    assert before.startswith('{"stateVersion":0,"timestamp":')
    assert (before[-2:], after[-2:]) == ("0}", "1}")
    wanted = {"fileReservedTime": "71", "autoCreateTopicEnable": "false"}
    assert shown(desk) | wanted == shown(desk)


def test_groups_follow_a_change(desk: Desk) -> None:
    assert desk.ask(UPDATE, b"autoCreateSubscriptionGroup=false\n").code == 0
    assert desk.context.groups.find("new") is None


def test_name_servers_hear_of_a_changed_permission_only(desk: Desk) -> None:
    desk.topic("orders")
    version = desk.context.topics.version
    desk.ask(UPDATE, b"brokerPermission=4\n")
    desk.ask(UPDATE, b"traceOn=false\nbrokerPermission=4\n")
    assert desk.announced == 1
    assert desk.context.topics.version.counter == version.counter + 1


def test_no_topic_is_told_to_be_for_more_than_the_broker_is(desk: Desk) -> None:
    desk.topic("orders")

    def perms() -> tuple[int, int]:
        table = desk.context.topics.told().topic_config_table
        return table["orders"].perm, table["TBW102"].perm

    assert perms() == (6, 7)
    desk.ask(UPDATE, b"brokerPermission=4\n")
    assert perms() == (4, 4)
    kept = desk.context.topics.get("orders")
    assert kept is not None
    assert kept.perm == 6
    desk.ask(UPDATE, b"brokerPermission=6\n")
    assert perms() == (6, 7)


@pytest.mark.parametrize(
    ("body", "code", "said"),
    [
        (b"noSuchKey=1", ResponseCode.SYSTEM_ERROR, "unknown setting 'noSuchKey'"),
        (b"fileReservdTime=1", ResponseCode.SYSTEM_ERROR, "did you mean fileReservedTime?"),
        (b"aclEnable=true", ResponseCode.SYSTEM_ERROR, "aclEnable: of no effect here"),
        (b"brokerName=x", ResponseCode.SYSTEM_ERROR, "brokerName cannot be changed while"),
        (b"flushDiskType=SYNC_FLUSH", ResponseCode.SYSTEM_ERROR, "flushDiskType cannot be changed"),
        (b"fileReservedTime=long", ResponseCode.SYSTEM_ERROR, "a whole number is expected"),
        (b"fileReservedTime=-1", ResponseCode.SYSTEM_ERROR, "cannot be negative"),
        (b"deleteWhen=noon", ResponseCode.SYSTEM_ERROR, "hours from 00 to 23 are expected"),
        (b"deleteWhen=24", ResponseCode.SYSTEM_ERROR, "hours from 00 to 23 are expected"),
        (b"diskMaxUsedSpaceRatio=101", ResponseCode.SYSTEM_ERROR, "0 to 100"),
        (b"traceOn=maybe", ResponseCode.SYSTEM_ERROR, "true or false is expected"),
        (b"brokerPermission=8", ResponseCode.SYSTEM_ERROR, "0 to 7 is expected"),
        (b"brokerConfigPath=1", ResponseCode.NO_PERMISSION, "Can not update config in black list."),
        (b"configBlackList=1", ResponseCode.NO_PERMISSION, "Can not update config in black list."),
        (b"\xff=1", ResponseCode.SYSTEM_ERROR, "string2Properties error"),
    ],
)
def test_a_change_that_cannot_be_changes_nothing(
    desk: Desk, body: bytes, code: int, said: str
) -> None:
    before = desk.ask(SHOW)
    refused = desk.ask(UPDATE, b"maxMessageSize=100\nlongPollingEnable=false\n" + body + b"\n")
    assert refused.code == code
    assert said in (refused.remark or "")
    assert desk.ask(SHOW) == before
