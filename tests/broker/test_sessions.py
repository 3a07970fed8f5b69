"""Heartbeats and farewells: who is in a group, and who hears of it."""

import asyncio
from pathlib import Path
from typing import Any

import msgspec
import pytest

from cometmq.broker import clients as clients_module
from cometmq.broker import parts as parts_module
from cometmq.broker import sessions as sessions_module
from cometmq.broker.broker import Broker
from cometmq.protocol.codes import Language, ResponseCode
from cometmq.protocol.command import Command
from cometmq.protocol.group_config import GroupConfig
from cometmq.protocol.topic_config import TopicConfig
from cometmq.testing.clock import ManualClock

from .brokers import (
    GROUP,
    TOPIC,
    Client,
    bounded,
    context_of,
    heartbeat_of,
    serving,
    until,
)


async def joined(broker: Broker, *names: str) -> list[Client]:
    """Members of the group, each of whom has heard of all who joined."""
    clients: list[Client] = []
    for name in names:
        clients.append(await Client.to(broker))
        await clients[-1].heartbeat(name, GROUP)
        for client in clients:
            assert await client.notice() == GROUP
    return clients


def wants_subscriptions(answer: Command) -> bool:
    return answer.text_fields()["IS_SUB_CHANGE"] == "true"


# -- heartbeats ----------------------------------------------------------------------------------


@bounded
async def test_a_heartbeat_makes_a_member(tmp_path: Path) -> None:
    async with serving(tmp_path) as broker:
        client = await Client.to(broker)
        answer = await client.heartbeat("me@1", GROUP, producers=["senders"])

        assert answer.code == 0
        assert answer.text_fields()["IS_SUPPORT_HEART_BEAT_V2"] == "true"
        assert await client.consumer_ids() == ["me@1"]
        clients = context_of(broker).clients
        group = clients.consumer_group(GROUP)
        assert group is not None
        assert (group.consume_type, group.message_model) == ("CONSUME_PASSIVELY", "CLUSTERING")
        assert list(group.subscriptions) == [TOPIC]
        (member,) = clients.producer_groups()["senders"]
        assert (member.client_id, member.language) == ("me@1", Language.PYTHON)


@bounded
async def test_a_heartbeat_makes_the_group_and_its_retry_topic(tmp_path: Path) -> None:
    async with serving(tmp_path) as broker:
        client, context = await Client.to(broker), context_of(broker)
        context.groups.update(GroupConfig("wide", retry_queue_nums=3))
        await client.heartbeat("me", GROUP, "wide")

        assert context.groups.get(GROUP) == GroupConfig(GROUP)
        assert context.topics.get(f"%RETRY%{GROUP}") == TopicConfig(f"%RETRY%{GROUP}", 1, 1, 6)
        assert context.topics.get("%RETRY%wide") == TopicConfig("%RETRY%wide", 3, 3, 6)


@bounded
async def test_an_unknown_group_is_passed_over_where_none_is_made(tmp_path: Path) -> None:
    async with serving(tmp_path, autoCreateSubscriptionGroup=False) as broker:
        client, context = await Client.to(broker), context_of(broker)
        context.groups.update(GroupConfig("known"))
        assert (await client.heartbeat("me", "stranger", "known")).code == 0
        assert await client.consumer_ids("stranger") == []
        assert await client.consumer_ids("known") == ["me"]
        assert context.topics.get("%RETRY%stranger") is None


@bounded
async def test_a_group_without_members_has_no_list(tmp_path: Path) -> None:
    async with serving(tmp_path) as broker:
        client = await Client.to(broker)
        answer = await client.ask(38, {"consumerGroup": "nobody"})
        assert answer.code == ResponseCode.SYSTEM_ERROR
        assert answer.remark == "no consumer for this group, nobody"


@pytest.mark.parametrize(
    "body",
    [b"", b"{", b"[]", b"{}", b'{"clientID":5,"consumerDataSet":7}', b"\xff\xfe", b"[" * 100_000],
)
@bounded
async def test_a_heartbeat_that_cannot_be_read_is_refused(tmp_path: Path, body: bytes) -> None:
    async with serving(tmp_path) as broker:
        client = await Client.to(broker)
        answer = await client.ask(34, {}, body)
        assert answer.code == ResponseCode.SYSTEM_ERROR
        assert (await client.heartbeat("me", GROUP)).code == 0


@bounded
async def test_fastjsons_bare_keys_and_unknown_fields_are_read(tmp_path: Path) -> None:
    body = (
        b'{"clientID":"me","consumerDataSet":[{"groupName":"billing","x":{1:2},'
        b'"subscriptionDataSet":[{"topic":"orders","subVersion":1,"new":true}]}]}'
    )
    async with serving(tmp_path) as broker:
        client = await Client.to(broker)
        assert (await client.ask(34, {}, body)).code == 0
        assert await client.consumer_ids() == ["me"]


@bounded
async def test_numbers_for_names_are_read_as_clients_on_the_cpp_library_tell_them(
    tmp_path: Path,
) -> None:
    told = heartbeat_of("cpp", consumeType=1, messageModel=1, consumeFromWhere=4)
    told["consumerDataSet"][0]["subscriptionDataSet"] = [
        {"topic": TOPIC, "subString": "*", "tagsSet": [], "codeSet": [], "subVersion": "17"}
    ]
    async with serving(tmp_path) as broker:
        client = await Client.to(broker)
        assert (await client.ask(34, {}, told)).code == ResponseCode.SUCCESS
        assert await client.consumer_ids() == ["cpp"]
        seen = msgspec.json.decode((await client.ask(203, {"consumerGroup": GROUP})).body)
        told["consumerDataSet"][0]["messageModel"] = 2
        refused = await client.ask(34, {}, told)
    assert (seen["consumeType"], seen["messageModel"], seen["consumeFromWhere"]) == (
        "CONSUME_PASSIVELY", "CLUSTERING", "CONSUME_FROM_FIRST_OFFSET",
    )  # fmt: skip
    assert (refused.code, refused.remark) == (
        ResponseCode.SYSTEM_ERROR,
        "a heartbeat tells 2 where 0 to 1 have a name",
    )


# -- notices -------------------------------------------------------------------------------------


@bounded
async def test_all_members_hear_of_a_new_one(tmp_path: Path) -> None:
    async with serving(tmp_path) as broker:
        clients = await joined(broker, "a", "b", "c")
        assert await clients[0].consumer_ids() == ["a", "b", "c"]
        assert all(client.notices.empty() for client in clients)


@bounded
async def test_a_heartbeat_that_brings_nothing_new_is_no_news(tmp_path: Path) -> None:
    async with serving(tmp_path) as broker:
        first, second = await joined(broker, "a", "b")
        for _ in range(3):
            await first.heartbeat("a", GROUP, version=9)
        await second.consumer_ids()
        assert first.notices.empty()
        assert second.notices.empty()


@bounded
async def test_all_who_stay_hear_of_a_farewell(tmp_path: Path) -> None:
    async with serving(tmp_path) as broker:
        first, second, third = await joined(broker, "a", "b", "c")
        answer = await third.ask(35, {"clientID": "c", "consumerGroup": GROUP})
        assert answer.code == 0
        assert [await first.notice(), await second.notice()] == [GROUP, GROUP]
        assert await first.consumer_ids() == ["a", "b"]
        assert third.notices.empty()
        assert third.connection.is_open


@bounded
async def test_all_who_stay_hear_of_a_closed_connection(tmp_path: Path) -> None:
    async with serving(tmp_path) as broker:
        first, second, third = await joined(broker, "a", "b", "c")
        third.close()
        assert [await first.notice(), await second.notice()] == [GROUP, GROUP]
        assert await first.consumer_ids() == ["a", "b"]
        second.connection.abort()
        assert await first.notice() == GROUP
        assert await first.consumer_ids() == ["a"]


@bounded
async def test_all_hear_of_a_topic_more_or_less(tmp_path: Path) -> None:
    async with serving(tmp_path) as broker:
        first, second = await joined(broker, "a", "b")
        for topics in ({TOPIC: "*", "more": "*"}, {"more": "*"}):
            await first.heartbeat("a", GROUP, topics=topics)
            assert [await first.notice(), await second.notice()] == [GROUP, GROUP]


@bounded
async def test_another_filter_is_taken_over_without_a_notice(tmp_path: Path) -> None:
    async with serving(tmp_path) as broker:
        (client,) = await joined(broker, "a")
        await client.heartbeat("a", GROUP, topics={TOPIC: "red"}, version=2)
        await client.heartbeat("a", GROUP, topics={TOPIC: "old"}, version=1)
        group = context_of(broker).clients.consumer_group(GROUP)
        assert group is not None
        assert group.subscriptions[TOPIC].sub_string == "red"
        assert client.notices.empty()


@bounded
async def test_a_group_may_be_left_in_peace(tmp_path: Path) -> None:
    async with serving(tmp_path) as broker:
        quiet = GroupConfig(GROUP, notify_consumer_ids_changed_enable=False)
        context_of(broker).groups.update(quiet)
        first, second = await Client.to(broker), await Client.to(broker)
        await first.heartbeat("a", GROUP)
        await second.heartbeat("b", GROUP)
        assert await first.consumer_ids() == ["a", "b"]
        assert first.notices.empty()


@bounded
async def test_a_member_of_several_groups_leaves_them_all_with_its_connection(
    tmp_path: Path,
) -> None:
    async with serving(tmp_path) as broker:
        staying, leaving = await Client.to(broker), await Client.to(broker)
        await staying.heartbeat("a", "one", "two", producers=["senders"])
        await leaving.heartbeat("b", "one", "two", "three", producers=["senders", "others"])
        leaving.close()
        await until(lambda: "others" not in context_of(broker).clients.producer_groups())

        assert await staying.consumer_ids("one") == ["a"]
        assert await staying.consumer_ids("two") == ["a"]
        assert await staying.consumer_ids("three") == []
        clients = context_of(broker).clients
        assert [m.client_id for m in clients.producer_groups()["senders"]] == ["a"]


@bounded
async def test_a_producers_farewell_leaves_its_consumers_alone(tmp_path: Path) -> None:
    async with serving(tmp_path) as broker:
        client = await Client.to(broker)
        await client.heartbeat("me", "both", producers=["both"])
        await client.ask(35, {"clientID": "me", "producerGroup": "both"})
        assert context_of(broker).clients.producer_groups() == {}
        assert await client.consumer_ids("both") == ["me"]


@bounded
async def test_a_farewell_of_a_stranger_changes_nothing(tmp_path: Path) -> None:
    async with serving(tmp_path) as broker:
        (client,) = await joined(broker, "a")
        stranger = await Client.to(broker)
        fields = {"clientID": "a", "consumerGroup": GROUP, "producerGroup": "senders"}
        assert (await stranger.ask(35, fields)).code == 0
        assert await client.consumer_ids() == ["a"]
        assert client.notices.empty()


# -- silence -------------------------------------------------------------------------------------


@bounded
async def test_who_is_silent_for_long_is_taken_for_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parts_module, "CLIENT_SCAN_INTERVAL_S", 0.01)
    clock = ManualClock()
    async with serving(tmp_path, clock=clock) as broker:
        living, silent = await joined(broker, "living", "silent")
        clock.advance(119_000)
        await living.heartbeat("living", GROUP)
        await asyncio.sleep(0.1)
        assert await living.consumer_ids() == ["living", "silent"]
        clock.advance(2_000)
        assert await living.notice() == GROUP
        assert await living.consumer_ids() == ["living"]
        await until(lambda: not silent.connection.is_open)


@bounded
async def test_a_silent_client_that_reads_nothing_is_gone_at_once(tmp_path: Path) -> None:
    """Its connection stays until its answers are read, but it is no member."""
    async with serving(tmp_path) as broker:
        (client,) = await joined(broker, "a")
        clients = context_of(broker).clients
        (member,) = clients._consumers[GROUP].members.values()
        closed: list[Any] = []
        member.connection.close = lambda: closed.append(member)  # type: ignore[method-assign]
        clients.expire(member.seen_ms + 1)
        assert clients.consumer_group(GROUP) is None
        assert closed == [member]
        client.close()


# -- heartbeats without subscriptions ------------------------------------------------------------


def brief(fingerprint: int = 7, **consumer: Any) -> dict[str, Any]:
    """A heartbeat that leaves the subscriptions as they were."""
    body = heartbeat_of("me", topics={}, **consumer)
    return {**body, "heartbeatFingerprint": fingerprint, "withoutSub": True}


def full(fingerprint: int = 7) -> dict[str, Any]:
    return {**heartbeat_of("me"), "heartbeatFingerprint": fingerprint, "withoutSub": False}


@bounded
async def test_a_heartbeat_without_subscriptions_leaves_them_as_they_were(tmp_path: Path) -> None:
    async with serving(tmp_path) as broker:
        client = await Client.to(broker)
        assert not wants_subscriptions(await client.ask(34, {}, full()))
        assert not wants_subscriptions(await client.ask(34, {}, brief()))
        group = context_of(broker).clients.consumer_group(GROUP)
        assert group is not None
        assert list(group.subscriptions) == [TOPIC]


@bounded
async def test_an_old_heartbeat_is_always_asked_for_all(tmp_path: Path) -> None:
    async with serving(tmp_path) as broker:
        client = await Client.to(broker)
        assert wants_subscriptions(await client.heartbeat("me", GROUP))


@bounded
async def test_another_fingerprint_asks_for_all(tmp_path: Path) -> None:
    async with serving(tmp_path) as broker:
        client = await Client.to(broker)
        await client.ask(34, {}, full(7))
        assert wants_subscriptions(await client.ask(34, {}, brief(8)))
        assert not wants_subscriptions(await client.ask(34, {}, brief(8)))


@bounded
async def test_after_a_restart_a_brief_heartbeat_is_asked_for_all(tmp_path: Path) -> None:
    async with serving(tmp_path) as broker:
        client = await Client.to(broker)
        await client.ask(34, {}, full())
    async with serving(tmp_path) as broker:
        client = await Client.to(broker)
        assert wants_subscriptions(await client.ask(34, {}, brief()))
        assert not wants_subscriptions(await client.ask(34, {}, full()))
        assert not wants_subscriptions(await client.ask(34, {}, brief()))


# -- bounds --------------------------------------------------------------------------------------


@bounded
async def test_there_are_no_more_members_than_are_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(clients_module, "MEMBERSHIPS_MAX", 3)
    async with serving(tmp_path) as broker:
        first, second = await Client.to(broker), await Client.to(broker)
        assert (await first.heartbeat("a", "one", producers=["p", "q"])).code == 0
        for refused in (("two",), ("one",)):
            assert (await second.heartbeat("b", *refused)).code == ResponseCode.SYSTEM_BUSY
        assert await first.consumer_ids("one") == ["a"]
        assert context_of(broker).clients.consumer_group("two") is None
        assert (await first.heartbeat("a", "one", producers=["p", "q"])).code == 0
        await first.ask(35, {"clientID": "a", "producerGroup": "p"})
        assert (await second.heartbeat("b", "two")).code == 0


@bounded
async def test_there_are_no_more_subscriptions_than_are_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(clients_module, "SUBSCRIPTIONS_MAX", 3)
    async with serving(tmp_path) as broker:
        first, second = await Client.to(broker), await Client.to(broker)
        many = {f"topic-{n}": "*" for n in range(4)}
        assert (await first.heartbeat("a", "one", topics=many)).code == ResponseCode.SYSTEM_BUSY
        assert (await first.heartbeat("a", "one", topics={"x": "*", "y": "*"})).code == 0
        assert (await second.heartbeat("b", "two", topics={"x": "*"})).code == 0
        third = {"x": "*", "y": "*", "z": "*"}
        assert (await first.heartbeat("a", "one", topics=third)).code == ResponseCode.SYSTEM_BUSY
        assert (await first.heartbeat("a", "one", topics={"z": "*"})).code == 0
        second.close()
        await until(lambda: context_of(broker).clients.consumer_group("two") is None)
        assert (await first.heartbeat("a", "one", topics=third)).code == 0


@bounded
async def test_what_is_kept_of_a_client_has_a_size(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    long = "x" * 20_000
    async with serving(tmp_path) as broker:
        client = await Client.to(broker)
        for refused in (
            heartbeat_of(long),
            heartbeat_of("me", producers=[long]),
            heartbeat_of("me", topics={long: "*"}),
            heartbeat_of("me", subscriptionDataSet=[{"topic": TOPIC, "subString": long}]),
            heartbeat_of("me", subscriptionDataSet=[{"topic": TOPIC, "tagsSet": [long]}]),
            heartbeat_of("me", subscriptionDataSet=[{"topic": TOPIC, "codeSet": [1] * 20_000}]),
        ):
            answer = await client.ask(34, {}, refused)
            assert answer.code == ResponseCode.INVALID_PARAMETER
            assert answer.remark is not None
            assert "is too large" in answer.remark
        monkeypatch.setattr(sessions_module, "HEARTBEAT_BYTES_MAX", 10)
        assert (await client.heartbeat("me", GROUP)).code == ResponseCode.INVALID_PARAMETER
        assert context_of(broker).clients.consumer_group(GROUP) is None


@bounded
async def test_a_client_that_changes_its_name_is_known_by_the_last_one(tmp_path: Path) -> None:
    async with serving(tmp_path) as broker:
        client, clients = await Client.to(broker), context_of(broker).clients
        for n in range(50):
            await client.heartbeat(f"name-{n}", producers=["p", "q"])
        assert list(clients._producers_by_id) == ["name-49"]
        assert clients.producer("name-0") is None


@bounded
async def test_a_client_that_came_back_is_found_when_its_old_connection_ends(
    tmp_path: Path,
) -> None:
    async with serving(tmp_path) as broker:
        old, new = await Client.to(broker), await Client.to(broker)
        clients = context_of(broker).clients
        await old.heartbeat("me", producers=["p"])
        await new.heartbeat("me", producers=["p"])
        old.close()
        await until(lambda: len(clients.producers("p")) == 1)
        found = clients.producer("me")
        assert found is not None
        assert found.connection.peer == new.connection.local


@bounded
async def test_a_client_that_leaves_one_group_is_found_by_its_other(tmp_path: Path) -> None:
    async with serving(tmp_path) as broker:
        client, clients = await Client.to(broker), context_of(broker).clients
        await client.heartbeat("me", producers=["p", "q"])
        await client.ask(35, {"clientID": "me", "producerGroup": "p"})
        assert clients.producer("me") is not None


@bounded
async def test_nothing_is_left_of_clients_that_are_gone(tmp_path: Path) -> None:
    async with serving(tmp_path) as broker:
        for round_ in range(3):
            client = await Client.to(broker)
            groups = [f"group-{n}" for n in range(20)]
            await client.heartbeat(f"client-{round_}", *groups, producers=groups)
            client.close()
        clients = context_of(broker).clients
        await until(lambda: not clients._consumers and not clients._producers)
        assert (clients._joined, clients._memberships, clients._subscriptions) == ({}, 0, 0)
        assert (clients._ids, clients._producers_by_id) == ({}, {})


# -- filters checked ahead -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "code"), [("TAG", 0), ("", 0), ("SQL92", ResponseCode.SYSTEM_ERROR)]
)
@bounded
async def test_a_filter_may_be_asked_about_ahead(tmp_path: Path, kind: str, code: int) -> None:
    subscription = {"topic": TOPIC, "subString": "a > 1", "expressionType": kind}
    async with serving(tmp_path) as broker:
        client = await Client.to(broker)
        body = {"clientId": "me", "group": GROUP, "subscriptionData": subscription}
        assert (await client.ask(46, {}, body)).code == code
        assert (await client.ask(46, {}, {"clientId": "me", "group": GROUP})).code == 0
