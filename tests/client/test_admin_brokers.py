"""Operators look at brokers and NameServers, and change their settings."""

import time
from pathlib import Path

import pytest

from cometmq.client.admin import Admin
from cometmq.client.admin.settings_text import settings_text
from cometmq.client.errors import (
    AnswerTimedOut,
    BrokerFailed,
    ConnectionLost,
    IllegalArgument,
    NoRoute,
    NotStarted,
    Unreachable,
)
from cometmq.testing import EmbeddedBroker
from tests.broker.brokers import serving
from tests.client.shop import (
    BROKERS,
    CLUSTER,
    IN_EACH,
    OFFLINE,
    ONLINE,
    QUEUES,
    SELLERS,
    TOPIC,
    open_shop,
)


async def test_the_brokers_of_a_cluster_are_listed() -> None:
    async with open_shop() as shop:
        nodes = await shop.admin.brokers.nodes()
        assert [(n.cluster, n.name, n.broker_id, n.address) for n in nodes] == [
            (CLUSTER, name, 0, address)
            for name, address in zip(BROKERS, shop.embedded.addresses, strict=True)
        ]
        assert await shop.admin.brokers.nodes(cluster="other") == []
        info = await shop.admin.brokers.cluster_info()
        assert {name: sorted(b) for name, b in info.cluster_addr_table.items()} == {
            CLUSTER: list(BROKERS)
        }


async def test_brokers_report_of_themselves() -> None:
    async with open_shop() as shop:
        infos = await shop.admin.brokers.runtime_info()
        assert list(infos) == list(BROKERS)
        for info in infos.values():
            assert info.version == info.table["brokerVersionDesc"] == "V5_5_0"
            assert info.put_today == len(QUEUES) * IN_EACH // 2
            assert info.commit_log_min_offset == 0 < info.commit_log_max_offset
            assert info.boot_timestamp > 0
            assert 0 <= info.disk_ratio <= 1
            assert info.put_tps >= 0
            assert info.get_tps >= 0
            assert info.get_today == 0
        assert list(await shop.admin.brokers.runtime_info(brokers=["broker-b"])) == ["broker-b"]


async def test_the_progress_of_all_groups_of_a_broker_is_told() -> None:
    async with open_shop() as shop:
        found = (await shop.admin.brokers.progress())["broker-b"]
        at_b = {queue for queue in QUEUES if queue.broker_name == "broker-b"}
        assert found.groups[OFFLINE].queues.keys() == found.groups[ONLINE].queues.keys() == at_b
        assert (found.groups[OFFLINE].lag, found.groups[ONLINE].lag) == (4, 2)
        assert found.lag == 6
        assert found.in_flight == 0
        ordered = (await shop.admin.brokers.progress(ordered_only=True))["broker-b"]
        assert ordered.lag == 0


async def test_a_counter_of_a_broker_is_read() -> None:
    async with open_shop() as shop:
        stats = await shop.admin.brokers.stats("broker-a", "TOPIC_PUT_NUMS", TOPIC)
        assert stats.stats_minute.sum >= 0
        with pytest.raises(BrokerFailed, match="The stats <TOPIC_PUT_NUMS> <nothing> not exist"):
            await shop.admin.brokers.stats("broker-a", "TOPIC_PUT_NUMS", "nothing")


async def test_settings_of_running_brokers_are_changed() -> None:
    async with open_shop() as shop:
        brokers = shop.admin.brokers
        await brokers.update_config({"fileReservedTime": 50, "autoCreateTopicEnable": False})
        for name, config in (await brokers.config()).items():
            wanted = {"fileReservedTime": "50", "autoCreateTopicEnable": "false"}
            assert config | wanted | {"brokerName": name} == config
        await brokers.update_config({"fileReservedTime": 60}, brokers=["broker-a"])
        found = {name: c["fileReservedTime"] for name, c in (await brokers.config()).items()}
        assert found == {"broker-a": "60", "broker-b": "50"}
        with pytest.raises(BrokerFailed, match="unknown setting 'noSuchKey'"):
            await brokers.update_config({"noSuchKey": 1})


@pytest.mark.parametrize(
    "changes",
    [{}, {"a b": 1}, {"a=b": 1}, {"a": "x\ny=1"}, {"a": " x"}, {"a": "x\\y"}, {"a": "ä"}],
    ids=["none", "blank", "equals", "line", "blank-before", "backslash", "umlaut"],
)
def test_settings_that_would_arrive_as_others_are_refused(changes: dict[str, object]) -> None:
    with pytest.raises(IllegalArgument):
        settings_text(changes)


def test_settings_are_lines() -> None:
    text = settings_text({"a.b": True, "messageDelayLevel": "1s 5s", "empty": "", "n": 3})
    assert text == b"a.b=true\nmessageDelayLevel=1s 5s\nempty=\nn=3\n"


async def test_writes_to_a_broker_are_forbidden_and_allowed_again() -> None:
    # Whoever comes online brings a topic, with which a broker tells its permissions anew.
    async with open_shop(online=False) as shop:
        count = len(await shop.admin.topics.names(internal=True)) - 1  # The other one's own topic.
        namesrv = shop.embedded.namesrv

        async def permissions() -> dict[str, int]:
            route = await shop.admin.topics.route(TOPIC)
            return {data.broker_name: data.perm for data in route.queue_datas}

        assert await shop.admin.brokers.forbid_writes("broker-a") == {namesrv: count}
        assert await permissions() == {"broker-a": 4, "broker-b": 6}
        assert await shop.admin.brokers.allow_writes("broker-a") == {namesrv: count}
        assert await permissions() == {"broker-a": 6, "broker-b": 6}


async def test_cleaning_up_leaves_what_is_in_use() -> None:
    async with open_shop() as shop:
        brokers = shop.admin.brokers
        await brokers.clean_expired_queues()
        await brokers.clean_unused_topics(cluster=CLUSTER)
        await brokers.delete_expired_log(brokers=["broker-a"])
        assert (await shop.admin.topics.stats(TOPIC)).messages == len(QUEUES) * IN_EACH


async def test_values_in_the_name_server_are_set_shown_and_removed() -> None:
    async with open_shop(online=False) as shop:
        namesrvs = shop.admin.namesrvs
        assert await namesrvs.get("space", "key") is None
        assert await namesrvs.values("space") == {}
        await namesrvs.put("space", "key", "value;1")
        assert await namesrvs.get("space", "key") == "value;1"
        assert await namesrvs.values("space") == {"key": "value;1"}
        await namesrvs.delete("space", "key")
        assert await namesrvs.get("space", "key") is None


async def test_settings_of_a_name_server_are_changed() -> None:
    async with open_shop(online=False) as shop:
        namesrvs, address = shop.admin.namesrvs, shop.embedded.namesrv
        await namesrvs.update_config({"orderMessageEnable": True})
        config = (await namesrvs.config())[address]
        assert config["orderMessageEnable"] == "true"
        assert config["listenPort"] == address.split(":")[1]


async def test_a_broker_that_is_away_fails_the_call_by_name_or_is_skipped(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with open_shop(through_proxy=True) as shop:
        nodes = await shop.admin.brokers.nodes()
        away = next(node.address for node in nodes if node.name == "broker-b")
        shop.embedded.proxy(1).refuse()
        shop.embedded.proxy(1).cut()
        with pytest.raises((Unreachable, ConnectionLost), match=f"broker broker-b at {away}: "):
            await shop.admin.groups.names()
        assert await shop.admin.groups.names(skip_unreachable=True) == [OFFLINE, ONLINE]
        found = await shop.admin.brokers.runtime_info(skip_unreachable=True)
        assert list(found) == ["broker-a"]
        assert list(await shop.admin.members.producers(skip_unreachable=True)) == [SELLERS]
        assert caplog.text.count("skipped: broker broker-b") == 1, "who asks on is told once"
        with pytest.raises(Unreachable, match="broker-b"):
            await shop.admin.topics.create("made")
        assert list(await shop.admin.topics.config("made", brokers=["broker-a"])) == ["broker-a"]


async def test_a_broker_that_does_not_answer_keeps_nobody_waiting() -> None:
    async with open_shop(through_proxy=True, request_timeout_s=0.5) as shop:
        shop.embedded.proxy(1).stall()
        started = time.monotonic()
        with pytest.raises(AnswerTimedOut, match="broker broker-b at "):
            await shop.admin.topics.stats(TOPIC)
        assert await shop.admin.groups.names(skip_unreachable=True) == [OFFLINE, ONLINE]
        assert time.monotonic() - started < 5.0
        shop.embedded.proxy(1).resume()
        assert await shop.admin.groups.names() == [OFFLINE, ONLINE]


async def test_all_errors_of_several_brokers_are_told() -> None:
    async with open_shop() as shop:
        with pytest.raises(BrokerFailed) as raised:
            await shop.admin.brokers.update_config({"noSuchKey": 1})
        (note,) = raised.value.__notes__
        told = {raised.value.peer, note.split(" by ")[1].split(" with ")[0]}
        assert told == set(shop.embedded.addresses)


async def test_with_several_clusters_a_change_says_which_is_meant(tmp_path: Path) -> None:
    async with open_shop() as shop:
        other = {"brokerName": "elsewhere", "brokerClusterName": "Other"}
        async with serving(tmp_path, namesrvAddr=shop.embedded.namesrv, **other):
            with pytest.raises(
                IllegalArgument, match="say which cluster is to be changed: DefaultCluster, Other"
            ):
                await shop.admin.topics.create("made")
            await shop.admin.topics.create("made", cluster="Other")
            assert list(await shop.admin.topics.config("made")) == ["elsewhere"]
            assert await shop.admin.topics.names(cluster="Other") == ["made"]
            await shop.admin.topics.delete("made", cluster="Other")
            assert await shop.admin.topics.names() == [TOPIC]
            with pytest.raises(NoRoute, match="no broker of cluster Third is registered now"):
                await shop.admin.topics.create("made", cluster="Third")


async def test_an_admin_that_was_not_started_says_so() -> None:
    async with EmbeddedBroker(in_memory=True) as embedded:
        admin = Admin(embedded.namesrv)
        with pytest.raises(NotStarted, match="start the client first"):
            await admin.topics.names()
        await admin.start()
        assert await admin.topics.names() == []
        await admin.stop()
        with pytest.raises(NotStarted):
            await admin.topics.names()


async def test_a_name_server_that_is_away_is_said_so() -> None:
    async with Admin("127.0.0.1:1") as admin:
        told = r"^no NameServer answers: cannot connect to 127\.0\.0\.1:1: [^:]*$"
        with pytest.raises(Unreachable, match=told):
            await admin.topics.names()
        with pytest.raises(Unreachable, match=r"NameServer 127\.0\.0\.1:1: cannot connect"):
            await admin.namesrvs.config()
