"""The tables of topics and groups: what is in them from the start, and what a restart finds."""

import json
from pathlib import Path

import pytest

from cometmq.broker import groups as groups_module
from cometmq.broker.config import BrokerConfig
from cometmq.broker.groups import Groups
from cometmq.broker.topics import Topics
from cometmq.protocol.codes import ResponseCode
from cometmq.protocol.group_config import GroupConfig
from cometmq.protocol.topic_config import QUEUES_MAX, TopicConfig
from cometmq.store.config_file import ConfigFile
from cometmq.store.errors import StoreMismatch
from cometmq.testing.clock import ManualClock

from .brokers import Client, bounded, context_of, serving


def topics_in(root: Path, **settings: object) -> Topics:
    config = BrokerConfig(**settings)  # type: ignore[arg-type]
    return Topics(config, 18, ConfigFile(root / "topics.json"), ManualClock())


def groups_in(root: Path, **settings: object) -> Groups:
    config = BrokerConfig(**settings)  # type: ignore[arg-type]
    return Groups(config, ConfigFile(root / "subscriptionGroup.json"), ManualClock())


# -- topics --------------------------------------------------------------------------------------


def test_a_broker_begins_with_the_topics_that_tools_look_for(tmp_path: Path) -> None:
    topics = topics_in(tmp_path, name="b-1", cluster="c-1")
    assert topics.get("c-1") == TopicConfig("c-1", 16, 16, 7)
    assert topics.get("b-1") == TopicConfig("b-1", 1, 1, 7)
    assert topics.get("TBW102") == TopicConfig("TBW102", 8, 8, 7)
    assert topics.get("SCHEDULE_TOPIC_XXXX") == TopicConfig("SCHEDULE_TOPIC_XXXX", 18, 18)
    assert topics.get("RMQ_SYS_TRACE_TOPIC") is None
    assert all(topics.is_system(topic.topic_name) for topic in topics)
    assert not topics.is_system("orders")


def test_settings_open_and_close_the_brokers_own_topics(tmp_path: Path) -> None:
    topics = topics_in(
        tmp_path, cluster_topic=False, broker_topic=False, auto_create_topics=False,
        trace_topic=True, trace_topic_name="traces",
    )  # fmt: skip
    assert topics.get("DefaultCluster") == TopicConfig("DefaultCluster", 16, 16, 1)
    assert topics.get("broker-a") == TopicConfig("broker-a", 1, 1, 1)
    assert topics.get("TBW102") is None
    assert topics.get("traces") == TopicConfig("traces", 1, 1)


@bounded
async def test_topics_survive_a_restart(tmp_path: Path) -> None:
    async with serving(tmp_path) as broker:
        client = await Client.to(broker)
        await client.send("made")
        context_of(broker).topics.update(
            TopicConfig("ordered", 3, 5, 4, order=True, attributes={"message.type": "FIFO"})
        )
        version = context_of(broker).topics.version
    file = json.loads((tmp_path / "config/topics.json").read_bytes())
    assert file["topicConfigTable"]["ordered"] == {
        "topicName": "ordered", "readQueueNums": 3, "writeQueueNums": 5, "perm": 4,
        "topicFilterType": "SINGLE_TAG", "topicSysFlag": 0, "order": True,
        "attributes": {"message.type": "FIFO"},
    }  # fmt: skip
    async with serving(tmp_path) as broker:
        topics = context_of(broker).topics
        assert topics.get("made") == TopicConfig("made", 4, 4)
        assert topics.get("ordered") == TopicConfig(
            "ordered", 3, 5, 4, order=True, attributes={"message.type": "FIFO"}
        )
        assert topics.version == version


@bounded
async def test_a_topic_is_on_disk_before_its_first_message_is_answered(tmp_path: Path) -> None:
    async with serving(tmp_path) as broker:
        client = await Client.to(broker)
        for n in range(5):
            await client.send(f"fresh-{n}")
            file = json.loads((tmp_path / "config/topics.json").read_bytes())
            assert f"fresh-{n}" in file["topicConfigTable"]


@bounded
async def test_topics_whose_file_was_lost_are_found_in_the_store(tmp_path: Path) -> None:
    async with serving(tmp_path) as broker:
        client = await Client.to(broker)
        await client.send("made", queue_id=2)
    for file in (tmp_path / "config").glob("topics.json*"):
        file.unlink()
    async with serving(tmp_path) as broker:
        client = await Client.to(broker)
        assert context_of(broker).topics.get("made") == TopicConfig("made", 3, 3)
        assert len(await client.pulled("made", 2)) == 1


def test_a_file_of_rocketmqs_is_read(tmp_path: Path) -> None:
    (tmp_path / "topics.json").write_bytes(
        b'{"dataVersion":{"counter":3,"stateVersion":0,"timestamp":5},"topicConfigTable":{"orders":'
        b'{"attributes":{},"order":false,"perm":6,"readQueueNums":4,"topicFilterType":"SINGLE_TAG",'
        b'"topicName":"orders","topicSysFlag":0,"writeQueueNums":2}},"topicQueueMappingInfoMap":{}}'
    )
    topics = topics_in(tmp_path)
    assert topics.get("orders") == TopicConfig("orders", read_queue_nums=4, write_queue_nums=2)
    assert topics.version.counter == 3


@pytest.mark.parametrize("content", [b"{", b"[]", b'{"topicConfigTable":{"a":7}}', b"\xff\xff"])
def test_a_file_that_cannot_be_read_is_named(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "topics.json"
    file.write_bytes(content)
    with pytest.raises(StoreMismatch, match=f"{file} cannot be read"):
        topics_in(tmp_path)


def test_a_damaged_file_is_replaced_by_its_backup(tmp_path: Path) -> None:
    topics = topics_in(tmp_path)
    topics.update(TopicConfig("first"))
    topics.update(TopicConfig("second"))
    (tmp_path / "topics.json").write_bytes(b"{")
    again = topics_in(tmp_path)
    assert again.get("first") is not None


def test_an_update_that_cannot_be_changes_nothing(tmp_path: Path) -> None:
    topics = topics_in(tmp_path)
    before = len(topics)
    good = TopicConfig("good")
    for bad in (
        TopicConfig("a b"),
        TopicConfig("x" * 128),
        TopicConfig("wide", read_queue_nums=QUEUES_MAX + 1),
        TopicConfig("negative", write_queue_nums=-1),
    ):
        with pytest.raises(ValueError, match=r"allowed|possible"):
            topics.update(good, bad)
    assert len(topics) == before


def test_operators_too_are_held_to_the_number_of_topics(tmp_path: Path) -> None:
    own = len(topics_in(tmp_path))
    topics = topics_in(tmp_path, topics_max=own + 1)
    topics.update(TopicConfig("one"))
    topics.update(TopicConfig("one", 2, 2))
    with pytest.raises(ValueError, match="maxTopicNum allows no more"):
        topics.update(TopicConfig("two"))
    assert topics.delete("one")
    assert not topics.delete("one")
    topics.update(TopicConfig("two"))


# -- groups --------------------------------------------------------------------------------------


@bounded
async def test_groups_survive_a_restart(tmp_path: Path) -> None:
    async with serving(tmp_path) as broker:
        client = await Client.to(broker)
        await client.heartbeat("me", "made")
        context_of(broker).groups.update(GroupConfig("chosen", retry_max_times=3))
    file = json.loads((tmp_path / "config/subscriptionGroup.json").read_bytes())
    assert file["subscriptionGroupTable"]["chosen"]["retryMaxTimes"] == 3
    async with serving(tmp_path) as broker:
        groups = context_of(broker).groups
        assert groups.get("made") == GroupConfig("made")
        assert groups.get("chosen") == GroupConfig("chosen", retry_max_times=3)


def test_groups_that_come_with_traffic_have_a_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = len(list(groups_in(tmp_path)))
    monkeypatch.setattr(groups_module, "GROUPS_MAX", own + 2)
    groups = groups_in(tmp_path)
    assert [groups.find(f"made-up-{n}") is not None for n in range(4)] == [True, True, False, False]
    assert groups.find("made-up-0") is not None


@bounded
async def test_heartbeats_of_made_up_groups_make_no_more_topics_than_allowed(
    tmp_path: Path,
) -> None:
    async with serving(tmp_path) as plain:
        own = len(context_of(plain).topics)
    async with serving(tmp_path, maxTopicNum=own + 3) as broker:
        client, topics = await Client.to(broker), context_of(broker).topics
        for n in range(10):
            assert (await client.heartbeat("me", f"made-up-{n}")).code == 0
        assert len(topics) == own + 3
        answer = await client.ask(36, {"offset": 0, "group": "made-up-9"})
        assert answer.code == ResponseCode.SYSTEM_ERROR


def test_a_forbidden_topic_is_forbidden_to_one_group(tmp_path: Path) -> None:
    groups = groups_in(tmp_path)
    groups.set_readable("billing", "orders", readable=False)
    assert not groups.may_read("billing", "orders")
    assert groups.may_read("billing", "others")
    assert groups.may_read("others", "orders")
    assert not groups_in(tmp_path).may_read("billing", "orders")
    groups.set_readable("billing", "orders", readable=True)
    assert groups.may_read("billing", "orders")
