"""Pulls that are answered at once: every outcome, limits, filters, and who may not."""

from pathlib import Path
from typing import Any

import pytest

from cometmq.broker.broker import Broker
from cometmq.protocol.codes import ResponseCode
from cometmq.protocol.command import Command
from cometmq.protocol.group_config import GroupConfig
from cometmq.protocol.java import string_hash
from cometmq.protocol.subscription import EXPRESSION_CHARS_MAX
from cometmq.protocol.topic_config import TopicConfig

from ..transport.peers import Peer
from .brokers import (
    COMMIT,
    GROUP,
    SUBSCRIPTION,
    TOPIC,
    Client,
    binary_frame,
    bodies_in,
    bounded,
    context_of,
    heartbeat_of,
    messages_in,
    number,
    pull_fields,
    request_of,
    serving,
)

COLLIDING = ("AaAa", "BBBB")
"""Two tags with one hash code, as Java reckons it."""


async def filled(broker: Broker, count: int, **how: Any) -> Client:
    """A client that has sent so many messages to queue 0."""
    client = await Client.to(broker)
    for n in range(count):
        assert (await client.send(body=b"%d" % n, **how)).code == 0
    return client


def positions(answer: Command) -> tuple[int, int, int]:
    return (
        number(answer, "nextBeginOffset"), number(answer, "minOffset"), number(answer, "maxOffset")
    )  # fmt: skip


# -- outcomes ------------------------------------------------------------------------------------


@bounded
async def test_messages_come_with_where_to_go_on(tmp_path: Path) -> None:
    async with serving(tmp_path) as broker:
        client = await filled(broker, 5)
        answer = await client.pull(offset=1, maxMsgNums=2)

        assert (answer.code, answer.remark) == (0, "FOUND")
        assert bodies_in(answer) == [b"1", b"2"]
        assert positions(answer) == (3, 0, 5)
        fields = answer.text_fields()
        assert (fields["suggestWhichBrokerId"], fields["groupSysFlag"]) == ("0", "0")


@pytest.mark.parametrize(
    ("offset", "code", "remark", "following"),
    [
        (3, ResponseCode.PULL_NOT_FOUND, "OFFSET_OVERFLOW_ONE", 3),
        (4, ResponseCode.PULL_OFFSET_MOVED, "OFFSET_OVERFLOW_BADLY", 3),
        (2**62, ResponseCode.PULL_OFFSET_MOVED, "OFFSET_OVERFLOW_BADLY", 3),
        (-1, ResponseCode.PULL_OFFSET_MOVED, "OFFSET_TOO_SMALL", 0),
    ],
)
@bounded
async def test_an_offset_outside_the_queue_is_put_right(
    tmp_path: Path, offset: int, code: int, remark: str, following: int
) -> None:
    async with serving(tmp_path) as broker:
        client = await filled(broker, 3)
        answer = await client.pull(offset=offset)

        assert (answer.code, answer.remark, answer.body) == (code, remark, b"")
        assert positions(answer) == (following, 0, 3)


@pytest.mark.parametrize(
    ("offset", "code"),
    [(0, ResponseCode.PULL_NOT_FOUND), (7, ResponseCode.PULL_OFFSET_MOVED)],
)
@bounded
async def test_an_empty_queue_is_waited_at_only_from_its_beginning(
    tmp_path: Path, offset: int, code: int
) -> None:
    async with serving(tmp_path) as broker:
        client = await filled(broker, 1)
        answer = await client.pull(queue_id=3, offset=offset)
        assert (answer.code, answer.remark) == (code, "NO_MATCHED_LOGIC_QUEUE")
        assert positions(answer) == (0, 0, 0)


@bounded
async def test_messages_that_are_gone_are_passed_over(tmp_path: Path) -> None:
    how = {"mappedFileSizeCommitLog": 8192, "fileReservedTime": 0}
    async with serving(tmp_path, **how) as broker:
        client = await filled(broker, 100)
        store = context_of(broker).store
        assert store.clean() > 0
        low = store.min_offset(TOPIC, 0)
        assert 0 < low < 100
        answer = await client.pull(offset=0)

        assert (answer.code, answer.remark) == (ResponseCode.PULL_OFFSET_MOVED, "OFFSET_TOO_SMALL")
        assert positions(answer) == (low, low, 100)
        assert bodies_in(await client.pull(offset=low))[0] == b"%d" % low


@bounded
async def test_a_binary_header_pulls_as_well(tmp_path: Path) -> None:
    async with serving(tmp_path) as broker:
        await filled(broker, 1)
        with await Peer.to(broker.address) as peer:
            await peer.send(binary_frame(request_of(11, pull_fields()), 5))
            answer = await peer.answer()
        assert (answer.code, answer.opaque, answer.kind.name) == (0, 5, "BINARY")
        assert bodies_in(answer) == [b"0"]
        assert positions(answer) == (1, 0, 1)


@bounded
async def test_a_lite_pull_is_a_pull(tmp_path: Path) -> None:
    async with serving(tmp_path) as broker:
        client = await filled(broker, 1)
        assert bodies_in(await client.ask(361, pull_fields())) == [b"0"]


# -- limits --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("asked", "got"), [(1, 1), (10, 10), (32, 32), (1000, 1000), (5000, 1024), (0, 1), (-9, 1)]
)
@bounded
async def test_a_pull_gets_as_many_as_it_asks_for_up_to_a_limit(
    tmp_path: Path, asked: int, got: int
) -> None:
    async with serving(tmp_path) as broker:
        client = await filled(broker, max(40, asked))
        assert len(bodies_in(await client.pull(maxMsgNums=asked))) == got


@bounded
async def test_a_pull_gets_as_many_bytes_as_the_setting_allows(tmp_path: Path) -> None:
    async with serving(tmp_path, maxTransferBytesOnMessageInMemory=5000) as broker:
        client = await Client.to(broker)
        for _ in range(10):
            await client.send(body=bytes(1000))
        answer = await client.pull()
        assert len(messages_in(answer)) == 4
        assert len(answer.body) <= 5000
        assert len(messages_in(await client.pull(maxMsgBytes=2500))) == 2


@pytest.mark.parametrize("limit", [1, -1])
@bounded
async def test_the_first_message_always_comes_whole(tmp_path: Path, limit: int) -> None:
    async with serving(tmp_path, maxTransferBytesOnMessageInMemory=5000) as broker:
        client = await Client.to(broker)
        for _ in range(2):
            await client.send(body=bytes(50_000))
        assert bodies_in(await client.pull(maxMsgBytes=limit)) == [bytes(50_000)]


@bounded
async def test_old_messages_come_in_smaller_portions(tmp_path: Path) -> None:
    how = {"accessMessageInMemoryMaxRatio": 0, "maxTransferCountOnMessageInDisk": 3}
    async with serving(tmp_path, **how) as broker:
        client = await filled(broker, 40)
        assert len(bodies_in(await client.pull(offset=0))) == 3
        assert len(bodies_in(await client.pull(offset=30))) == 10


@bounded
async def test_a_group_may_send_readers_of_old_messages_to_its_slave(tmp_path: Path) -> None:
    how = {"accessMessageInMemoryMaxRatio": 0, "slaveReadEnable": True}
    async with serving(tmp_path, **how) as broker:
        client = await filled(broker, 40)
        answer = await client.pull(offset=0)
        assert answer.text_fields()["suggestWhichBrokerId"] == "1"


# -- filters -------------------------------------------------------------------------------------


async def tagged(broker: Broker, *tags: str) -> Client:
    client = await Client.to(broker)
    for tag in tags:
        await client.send(body=tag.encode(), properties={"TAGS": tag} if tag else {})
    return client


@pytest.mark.parametrize(
    ("expression", "matching"),
    [
        ("*", [b"red", b"green", b"", b"blue", b"red"]),
        ("", [b"red", b"green", b"", b"blue", b"red"]),
        ("red", [b"red", b"red"]),
        ("red||blue", [b"red", b"blue", b"red"]),
        ("  red || green  ||", [b"red", b"green", b"red"]),
    ],
)
@bounded
async def test_tags_choose(tmp_path: Path, expression: str, matching: list[bytes]) -> None:
    async with serving(tmp_path) as broker:
        client = await tagged(broker, "red", "green", "", "blue", "red")
        answer = await client.pull(subscription=expression)
        assert bodies_in(answer) == matching
        assert number(answer, "nextBeginOffset") == 5


@bounded
async def test_nothing_that_matches_moves_the_reader_on(tmp_path: Path) -> None:
    async with serving(tmp_path) as broker:
        client = await tagged(broker, "red", "green")
        answer = await client.pull(subscription="blue")
        assert answer.code == ResponseCode.PULL_RETRY_IMMEDIATELY
        assert answer.remark == "NO_MATCHED_MESSAGE"
        assert positions(answer) == (2, 0, 2)


@bounded
async def test_tags_of_one_hash_both_come_and_the_consumer_tells_them_apart(tmp_path: Path) -> None:
    assert string_hash(COLLIDING[0]) == string_hash(COLLIDING[1])
    async with serving(tmp_path) as broker:
        client = await tagged(broker, *COLLIDING, "red")
        answer = await client.pull(subscription=COLLIDING[0])
        assert bodies_in(answer) == [tag.encode() for tag in COLLIDING]


@pytest.mark.parametrize("expression", ["||", " || ", "a" * (EXPRESSION_CHARS_MAX + 1)])
@bounded
async def test_an_expression_without_tags_is_refused(tmp_path: Path, expression: str) -> None:
    async with serving(tmp_path) as broker:
        client = await filled(broker, 1)
        answer = await client.pull(subscription=expression)
        assert answer.code == ResponseCode.SUBSCRIPTION_PARSE_FAILED


# -- subscriptions from heartbeats ---------------------------------------------------------------


@bounded
async def test_a_pull_uses_what_the_groups_heartbeat_told(tmp_path: Path) -> None:
    async with serving(tmp_path) as broker:
        client = await tagged(broker, "red", "green")
        await client.heartbeat("me", GROUP, topics={TOPIC: "green"}, version=5)
        answer = await client.pull(flag=0, subVersion=5)
        assert bodies_in(answer) == [b"green"]


@bounded
async def test_a_tag_filter_without_a_type_is_one_by_tags(tmp_path: Path) -> None:
    """As the Go client sends it when its user names no type."""
    async with serving(tmp_path) as broker:
        client = await tagged(broker, "red", "green")
        subscription = {"topic": TOPIC, "subString": "green", "expressionType": ""}
        heartbeat = heartbeat_of("me", subscriptionDataSet=[subscription])
        assert (await client.ask(34, {}, heartbeat)).code == 0
        assert bodies_in(await client.pull(flag=0, subVersion=0)) == [b"green"]


@bounded
async def test_without_a_heartbeat_there_is_no_subscription(tmp_path: Path) -> None:
    async with serving(tmp_path) as broker:
        client = await filled(broker, 1)
        answer = await client.pull(flag=0)
        assert answer.code == ResponseCode.SUBSCRIPTION_NOT_EXIST
        assert answer.remark is not None
        assert f"no heartbeat of {GROUP}" in answer.remark


@bounded
async def test_a_topic_that_the_group_did_not_name_is_refused(tmp_path: Path) -> None:
    async with serving(tmp_path) as broker:
        client = await filled(broker, 1)
        await client.heartbeat("me", GROUP, topics={"other": "*"})
        answer = await client.pull(flag=0)
        assert answer.code == ResponseCode.SUBSCRIPTION_NOT_EXIST
        assert answer.remark is not None
        assert f"{GROUP} has not subscribed to {TOPIC}" in answer.remark


@bounded
async def test_a_pull_that_is_ahead_of_the_heartbeat_has_to_wait_for_it(tmp_path: Path) -> None:
    async with serving(tmp_path) as broker:
        client = await filled(broker, 1)
        await client.heartbeat("me", GROUP, version=5)
        early = await client.pull(flag=0, subVersion=6)
        assert early.code == ResponseCode.SUBSCRIPTION_NOT_LATEST
        await client.heartbeat("me", GROUP, version=6)
        assert (await client.pull(flag=0, subVersion=6)).code == 0
        assert (await client.pull(flag=0, subVersion=5)).code == 0


@bounded
async def test_a_heartbeats_expression_without_tags_is_told_at_the_pull(tmp_path: Path) -> None:
    async with serving(tmp_path) as broker:
        client = await filled(broker, 1)
        heartbeat = heartbeat_of("me", subscriptionDataSet=[{"topic": TOPIC, "subString": "||"}])
        await client.ask(34, {}, heartbeat)
        answer = await client.pull(flag=0, subVersion=0)
        assert answer.code == ResponseCode.SUBSCRIPTION_PARSE_FAILED


# -- who may not ---------------------------------------------------------------------------------


@bounded
async def test_a_broker_that_may_not_be_read_says_so(tmp_path: Path) -> None:
    async with serving(tmp_path, brokerPermission=2) as broker:
        client = await filled(broker, 1)
        answer = await client.pull()
        assert answer.code == ResponseCode.NO_PERMISSION
        assert answer.text_fields() == {"forbiddenType": "1"}


@bounded
async def test_an_unknown_group_is_made_or_refused_as_the_setting_says(tmp_path: Path) -> None:
    async with serving(tmp_path) as broker:
        client = await filled(broker, 1)
        assert (await client.pull(group="fresh")).code == 0
        assert context_of(broker).groups.get("fresh") == GroupConfig("fresh")
    async with serving(tmp_path, autoCreateSubscriptionGroup=False) as broker:
        client = await Client.to(broker)
        assert (await client.pull(group="fresh")).code == 0
        answer = await client.pull(group="stranger")
        assert answer.code == ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST
        assert (await client.pull(group="CID_RMQ_SYS_TRANS")).code == 0


@pytest.mark.parametrize("name", ["a b", "", "x" * 249])
@bounded
async def test_a_group_whose_name_cannot_be_does_not_exist(tmp_path: Path, name: str) -> None:
    async with serving(tmp_path) as broker:
        client = await filled(broker, 1)
        answer = await client.pull(group=name)
        assert answer.code == ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST


@bounded
async def test_a_group_that_is_switched_off_may_not_read(tmp_path: Path) -> None:
    async with serving(tmp_path) as broker:
        client = await filled(broker, 1)
        context_of(broker).groups.update(GroupConfig(GROUP, consume_enable=False))
        answer = await client.pull()
        assert answer.code == ResponseCode.NO_PERMISSION
        assert answer.text_fields() == {"forbiddenType": "2"}


@bounded
async def test_a_topic_that_may_not_be_read_says_so(tmp_path: Path) -> None:
    async with serving(tmp_path) as broker:
        client = await Client.to(broker)
        context_of(broker).topics.update(TopicConfig("closed", 4, 4, perm=2))
        answer = await client.pull("closed")
        assert answer.code == ResponseCode.NO_PERMISSION
        assert answer.text_fields() == {"forbiddenType": "3"}


@bounded
async def test_a_group_that_may_not_broadcast_is_refused(tmp_path: Path) -> None:
    async with serving(tmp_path) as broker:
        client = await filled(broker, 1)
        context_of(broker).groups.update(GroupConfig(GROUP, consume_broadcast_enable=False))
        await client.ask(34, {}, heartbeat_of("me", messageModel="BROADCASTING"))
        answer = await client.pull(flag=0)
        assert answer.code == ResponseCode.NO_PERMISSION
        assert answer.text_fields() == {"forbiddenType": "4"}
        await client.ask(34, {}, heartbeat_of("me", messageModel="CLUSTERING"))
        assert (await client.pull(flag=0)).code == 0


@bounded
async def test_a_topic_that_does_not_exist_is_not_made_by_a_pull(tmp_path: Path) -> None:
    async with serving(tmp_path) as broker:
        client = await Client.to(broker)
        answer = await client.pull("fresh")
        assert answer.code == ResponseCode.TOPIC_NOT_EXIST
        assert answer.remark == "topic[fresh] not exist, apply first please!"
        assert context_of(broker).topics.get("fresh") is None


@pytest.mark.parametrize("queue_id", [4, -1, 2**31 - 1])
@bounded
async def test_a_queue_outside_the_topic_is_refused(tmp_path: Path, queue_id: int) -> None:
    async with serving(tmp_path) as broker:
        client = await filled(broker, 1)
        answer = await client.pull(queue_id=queue_id)
        assert answer.code == ResponseCode.INVALID_PARAMETER
        assert answer.remark is not None
        assert f"queueId[{queue_id}] is illegal" in answer.remark


# -- offsets that come along ---------------------------------------------------------------------


@bounded
async def test_a_pull_may_commit_on_its_way(tmp_path: Path) -> None:
    async with serving(tmp_path) as broker:
        client = await filled(broker, 5)
        await client.pull(offset=3, flag=COMMIT | SUBSCRIPTION, commitOffset=3)
        assert await client.offset_of() == 3
        await client.pull(offset=5, commitOffset=5)
        assert await client.offset_of() == 3
        await client.pull(offset=5, flag=COMMIT | SUBSCRIPTION, commitOffset=-1)
        assert await client.offset_of() == 3


@bounded
async def test_a_refused_pull_commits_nothing(tmp_path: Path) -> None:
    async with serving(tmp_path) as broker:
        client = await filled(broker, 5)
        await client.pull(queue_id=4, flag=COMMIT | SUBSCRIPTION, commitOffset=3)
        await client.pull(offset=5, flag=COMMIT, commitOffset=3)
        assert await client.offset_of() == -1
        assert await client.offset_of(queue_id=4) == -1
