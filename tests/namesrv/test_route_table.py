"""The tables of a NameServer: who comes, who goes, and what is told meanwhile."""

import contextlib

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cometmq.namesrv.route_table import (
    BROKER_TIMEOUT_MS,
    UNIT_FLAG,
    UNIT_SUBSCRIPTION_FLAG,
    Endpoint,
    NotRegisteredYet,
    RouteTable,
)
from cometmq.protocol.data_version import DataVersion
from cometmq.protocol.registration import BrokerFields, MasterFields, RegisterFields
from cometmq.protocol.routes import BrokerData, QueueData, QueueMapping
from cometmq.protocol.topic_config import TopicConfig

from .brokers import CLUSTER, broker, topics

NOW = 1_000_000
MASTER, SLAVE = "10.0.0.1:10911", "10.0.0.2:10911"


@pytest.fixture
def table() -> RouteTable:
    return RouteTable()


def addresses(table: RouteTable, topic: str, *, acting_master: bool = False) -> dict[int, str]:
    route = table.route(topic, acting_master=acting_master)
    assert route is not None, topic
    (data,) = route.broker_datas
    return data.broker_addrs


def permission(table: RouteTable, topic: str, name: str = "a") -> int:
    return table.topic_queue_table[topic][name].perm


def identity(fields: RegisterFields) -> BrokerFields:
    return BrokerFields(
        fields.broker_name, fields.broker_addr, fields.cluster_name, fields.broker_id
    )


def is_empty(table: RouteTable) -> bool:
    return not (
        table.topic_queue_table
        or table.broker_addr_table
        or table.cluster_addr_table
        or table.broker_live_table
        or table.filter_server_table
    )


# -- registering -----------------------------------------------------------------------------------


def test_a_registered_broker_is_in_the_route_of_its_topics(table: RouteTable) -> None:
    table.register(broker(), topics("orders", "bills"), NOW)
    route = table.route("orders")
    assert route is not None
    assert route.broker_datas == [BrokerData({0: MASTER}, "a", CLUSTER)]
    assert route.queue_datas == [QueueData("a", 6, 4, 0, 4)]
    assert table.route("unknown") is None
    assert table.cluster_info().cluster_addr_table == {CLUSTER: ["a"]}


def test_a_topic_at_two_brokers_has_both_in_its_route(table: RouteTable) -> None:
    table.register(broker("a", "h:1"), topics("orders", "x"), NOW)
    table.register(broker("b", "h:2"), topics("orders", "y"), NOW)
    route = table.route("orders")
    assert route is not None
    assert [data.broker_name for data in route.broker_datas] == ["a", "b"]
    assert [queues.broker_name for queues in route.queue_datas] == ["a", "b"]


def test_one_topic_alone_is_refused_from_a_broker_that_is_not_known(table: RouteTable) -> None:
    with pytest.raises(NotRegisteredYet, match="a has not registered"):
        table.register(broker(), topics("orders"), NOW)
    assert is_empty(table)


def test_one_topic_of_a_known_broker_comes_on_top_of_the_others(table: RouteTable) -> None:
    table.register(broker(), topics("orders", "bills"), NOW)
    table.register(broker(), topics("news", version=2), NOW)
    assert table.all_topics().topic_list == ["orders", "bills", "news"]


def test_a_changed_topic_counts_only_with_a_new_data_version(table: RouteTable) -> None:
    table.register(broker(), topics("orders", "bills"), NOW)
    table.register(broker(), topics("orders", "bills", perm=4), NOW)
    assert permission(table, "orders") == 6
    table.register(broker(), topics("orders", "bills", perm=4, version=2), NOW)
    assert permission(table, "orders") == 4


def test_a_missing_topic_is_taken_also_with_an_old_data_version(table: RouteTable) -> None:
    table.register(broker(), topics("orders", "bills"), NOW)
    table.delete_topic("orders")
    table.register(broker(), topics("orders", "bills"), NOW)
    assert table.route("orders") is not None


def test_topics_that_a_broker_no_longer_has_stay_unless_told_otherwise(table: RouteTable) -> None:
    table.register(broker(), topics("orders", "bills", "news"), NOW)
    table.register(broker(), topics("orders", "bills", version=2), NOW)
    assert table.route("news") is not None
    table.register(broker(), topics("orders", "x", version=3), NOW, drop_missing_topics=True)
    assert table.all_topics().topic_list == ["orders", "x"]


def test_a_slave_that_becomes_master_stands_under_one_id(table: RouteTable) -> None:
    table.register(broker(address=MASTER), topics("orders", "x"), NOW)
    table.register(broker(address=SLAVE, broker_id=1), topics("orders", "x"), NOW)
    assert addresses(table, "orders") == {0: MASTER, 1: SLAVE}
    table.register(broker(address=SLAVE, broker_id=0), topics("orders", "x", version=2), NOW)
    assert addresses(table, "orders") == {0: SLAVE}


def test_who_knows_of_a_later_election_keeps_its_id(table: RouteTable) -> None:
    table.register(broker(address="new:1"), topics("orders", "x", state=5), NOW)
    answer = table.register(broker(address="old:1"), topics("orders", "x", state=4), NOW)
    assert answer == MasterFields()
    assert addresses(table, "orders") == {0: "new:1"}
    assert Endpoint(CLUSTER, "old:1") not in table.broker_live_table
    table.register(broker(address="newest:1"), topics("orders", "x", state=5), NOW)
    assert addresses(table, "orders") == {0: "newest:1"}


def test_a_slave_learns_where_its_master_is(table: RouteTable) -> None:
    slave = broker(address=SLAVE, broker_id=1)
    assert table.register(slave, topics("orders", "x"), NOW) == MasterFields()
    assert table.register(broker(ha="ha:1"), topics("orders", "x"), NOW) == MasterFields()
    assert table.register(slave, topics("orders", "x"), NOW) == MasterFields("ha:1", MASTER)


def test_topics_of_a_slave_do_not_count_beside_its_master(table: RouteTable) -> None:
    table.register(broker(), topics("orders", "x"), NOW)
    table.register(broker(address=SLAVE, broker_id=1), topics("orders", "slave-only"), NOW)
    assert table.route("slave-only") is None


@pytest.mark.parametrize(
    ("acting_master", "expected"), [(None, None), (False, 6), (True, 4)], ids=["4.x", "off", "on"]
)
def test_topics_of_a_slave_without_master_count_since_5(
    table: RouteTable, acting_master: bool | None, expected: int | None
) -> None:
    slave = broker(address=SLAVE, broker_id=1, acting_master=acting_master)
    table.register(slave, topics("orders", "x"), NOW)
    queues = table.topic_queue_table.get("orders")
    assert (queues["a"].perm if queues else None) == expected


def test_a_broker_that_moves_to_another_cluster_leaves_the_first(table: RouteTable) -> None:
    table.register(broker(cluster="old"), topics("orders", "x"), NOW, connection="first")
    table.register(broker(cluster="new"), topics("orders", "x"), NOW, connection="second")
    assert table.cluster_info().cluster_addr_table == {"new": ["a"]}
    table.disconnect("first")
    assert addresses(table, "orders") == {0: MASTER}
    table.disconnect("second")
    assert is_empty(table)


# -- staying and going -----------------------------------------------------------------------------


def test_a_silent_broker_expires_after_two_minutes(table: RouteTable) -> None:
    table.register(broker(), topics("orders", "x"), NOW, connection="it")
    assert table.expire(NOW + BROKER_TIMEOUT_MS) == []
    assert table.expire(NOW + BROKER_TIMEOUT_MS + 1) == [(Endpoint(CLUSTER, MASTER), "it")]
    assert is_empty(table)


def test_a_broker_may_name_its_own_time(table: RouteTable) -> None:
    table.register(broker(timeout_ms=1000), topics("orders", "x"), NOW)
    assert table.expire(NOW + 1000) == []
    assert len(table.expire(NOW + 1001)) == 1


@pytest.mark.parametrize("sign", ["registration", "heartbeat"])
def test_every_sign_of_life_keeps_a_broker(table: RouteTable, sign: str) -> None:
    table.register(broker(), topics("orders", "x"), NOW)
    later = NOW + BROKER_TIMEOUT_MS
    if sign == "registration":
        table.register(broker(), topics("orders", "x"), later)
    else:
        table.heartbeat(CLUSTER, MASTER, later)
    assert table.expire(later + BROKER_TIMEOUT_MS) == []
    table.heartbeat(CLUSTER, "nobody:1", later)
    assert len(table.broker_live_table) == 1


def test_a_connection_that_somebody_else_uses_is_not_given_up(table: RouteTable) -> None:
    table.register(broker("a", "h:1"), topics("orders", "x"), NOW, connection="shared")
    table.register(broker("b", "h:2"), topics("orders", "x"), NOW + 1, connection="shared")
    assert table.expire(NOW + BROKER_TIMEOUT_MS + 1) == [(Endpoint(CLUSTER, "h:1"), None)]
    assert table.disconnect("shared") == [Endpoint(CLUSTER, "h:2")]
    assert is_empty(table)


def test_a_closed_connection_takes_its_broker_with_it(table: RouteTable) -> None:
    table.register(broker(), topics("orders", "x"), NOW, connection="it")
    assert table.disconnect("another") == []
    assert table.disconnect("it") == [Endpoint(CLUSTER, MASTER)]
    assert is_empty(table)


def test_the_end_of_an_old_connection_does_not_hurt_who_came_back(table: RouteTable) -> None:
    table.register(broker(), topics("orders", "x"), NOW, connection="old")
    table.register(broker(), topics("orders", "x"), NOW, connection="new")
    assert table.disconnect("old") == []
    assert table.route("orders") is not None


def test_the_last_broker_of_a_name_takes_its_topics_along(table: RouteTable) -> None:
    slave = broker(address=SLAVE, broker_id=1)
    table.register(broker(), topics("orders", "x"), NOW)
    table.register(slave, topics("orders", "x"), NOW)
    table.unregister(identity(broker()))
    assert addresses(table, "orders") == {1: SLAVE}
    assert permission(table, "orders") == 6
    table.unregister(identity(slave))
    assert is_empty(table)


def test_without_its_master_a_name_with_acting_masters_is_read_only(table: RouteTable) -> None:
    slave = broker(address=SLAVE, broker_id=1, acting_master=True)
    table.register(broker(acting_master=True), topics("orders", "x"), NOW)
    table.register(slave, topics("orders", "x"), NOW)
    table.unregister(identity(broker()))
    assert permission(table, "orders") == 4
    assert addresses(table, "orders") == {1: SLAVE}
    assert addresses(table, "orders", acting_master=True) == {0: SLAVE}


def test_brokers_of_one_name_find_each_other_under_their_real_ids(table: RouteTable) -> None:
    members = "rmq_sys_SYNC_BROKER_MEMBER_a"
    slave = broker(address=SLAVE, broker_id=1, acting_master=True)
    table.register(slave, topics(members, "x"), NOW)
    assert addresses(table, members, acting_master=True) == {1: SLAVE}
    group = table.member_group(CLUSTER, "a")
    assert (group.broker_name, group.broker_addrs) == ("a", {1: SLAVE})
    assert table.member_group(CLUSTER, "nobody").broker_addrs == {}


def test_unregistering_under_a_wrong_name_still_leaves_nothing_behind(table: RouteTable) -> None:
    table.register(broker("a"), topics("orders", "x"), NOW)
    table.unregister(identity(broker("b")))
    assert is_empty(table)


# -- what operators do -----------------------------------------------------------------------------


def test_write_permission_is_taken_and_given_for_all_topics_of_a_broker(table: RouteTable) -> None:
    table.register(broker("a", "h:1"), topics("orders", "x", perm=7), NOW)
    table.register(broker("b", "h:2"), topics("orders", "y"), NOW)
    assert table.wipe_write_permission("a") == 2
    assert permission(table, "orders", "a") == 5
    assert permission(table, "orders", "b") == 6
    assert table.add_write_permission("a") == 2
    assert permission(table, "orders", "a") == 6
    assert table.wipe_write_permission("nobody") == 0


def test_a_topic_is_deleted_everywhere_or_in_one_cluster(table: RouteTable) -> None:
    table.register(broker("a", "h:1", cluster="c1"), topics("orders", "x"), NOW)
    table.register(broker("b", "h:2", cluster="c2"), topics("orders", "x"), NOW)
    table.delete_topic("orders", "c1")
    assert list(table.topic_queue_table["orders"]) == ["b"]
    table.delete_topic("orders", "c3")
    table.delete_topic("orders", "c2")
    assert "orders" not in table.topic_queue_table
    table.delete_topic("x")
    table.delete_topic("x")
    assert table.all_topics().topic_list == []


def test_a_single_topic_is_taken_for_known_brokers_only(table: RouteTable) -> None:
    table.register(broker("a"), topics("orders", "x"), NOW)
    known, unknown = QueueData("a", 6, 2, 0, 2), QueueData("b", 6, 2, 0, 2)
    assert table.register_topic("news", [known])
    assert table.route("news") is not None
    assert not table.register_topic("more", [known, unknown])
    assert not table.register_topic("more", [])
    assert table.route("more") is None


# -- what is asked ---------------------------------------------------------------------------------


def test_filter_servers_stand_in_the_route_by_broker_address(table: RouteTable) -> None:
    table.register(broker("a", "h:1"), topics("orders", "x", filters=["f:1"]), NOW)
    table.register(broker("b", "h:2"), topics("orders", "x"), NOW)
    route = table.route("orders")
    assert route is not None
    assert route.filter_server_table == {"h:1": ["f:1"]}
    table.register(broker("a", "h:1"), topics("orders", "x", filters=None), NOW)
    assert table.filter_server_table == {Endpoint(CLUSTER, "h:1"): ["f:1"]}
    table.register(broker("a", "h:1"), topics("orders", "x"), NOW)
    assert table.filter_server_table == {}


def test_queue_mappings_stand_in_the_route_of_a_static_topic(table: RouteTable) -> None:
    content = topics("static", "x")
    mapping = QueueMapping("a", {0: 0}, topic="static", total_queues=1)
    content.topics.queue_mappings = {"static": mapping}
    table.register(broker("a"), content, NOW)
    static, other = table.route("static"), table.route("x")
    assert static is not None
    assert static.topic_queue_mapping_by_broker == {"a": mapping}
    assert other is not None
    assert other.topic_queue_mapping_by_broker is msgspec.UNSET


def test_a_route_is_a_copy_that_later_changes_do_not_reach(table: RouteTable) -> None:
    table.register(broker(), topics("orders", "x"), NOW)
    route = table.route("orders")
    assert route is not None
    table.register(broker(address=SLAVE, broker_id=1), topics("orders", "x"), NOW)
    assert route.broker_datas[0].broker_addrs == {0: MASTER}


def test_topics_are_listed_by_cluster_and_by_flags(table: RouteTable) -> None:
    content = topics("plain", "unit", "subscribed", "both")
    config = content.topics.topic_config_table
    config["unit"].topic_sys_flag = UNIT_FLAG
    config["subscribed"].topic_sys_flag = UNIT_SUBSCRIPTION_FLAG
    config["both"].topic_sys_flag = UNIT_FLAG | UNIT_SUBSCRIPTION_FLAG
    table.register(broker(cluster="c1"), content, NOW)
    table.register(broker("b", "h:2", cluster="c2"), topics("elsewhere", "x"), NOW)
    listed = table.topics_of_cluster
    assert listed("c1").topic_list == ["plain", "unit", "subscribed", "both"]
    assert listed("c3").topic_list == []
    flagged = table.topics_flagged
    assert flagged(UNIT_FLAG).topic_list == ["unit", "both"]
    assert flagged(UNIT_SUBSCRIPTION_FLAG).topic_list == ["subscribed", "both"]
    only = flagged(UNIT_SUBSCRIPTION_FLAG, without=UNIT_FLAG)
    assert only.topic_list == ["subscribed"]


def test_system_topics_are_named_like_clusters_and_brokers(table: RouteTable) -> None:
    assert table.system_topics().topic_list == []
    table.register(broker("a", "h:1"), topics("x", "y"), NOW)
    table.register(broker("b", "h:2"), topics("x", "y"), NOW)
    found = table.system_topics()
    assert found.topic_list == [CLUSTER, "a", "b"]
    assert found.broker_addr == "h:1"


def test_the_data_version_of_a_broker_is_the_last_it_registered(table: RouteTable) -> None:
    assert table.data_version(CLUSTER, MASTER) is None
    table.register(broker(), topics("x", "y", version=3), NOW)
    assert table.data_version(CLUSTER, MASTER) == DataVersion(0, 0, 3)


# -- whatever happens ------------------------------------------------------------------------------

NAMES = st.sampled_from(["a", "b"])
CLUSTERS = st.sampled_from(["c1", "c2"])
ADDRESSES = st.sampled_from(["h:1", "h:2", "h:3"])
TOPICS = st.lists(st.sampled_from(["t1", "t2", "t3"]), unique=True)
STEPS = st.one_of(
    st.tuples(
        st.just("register"), NAMES, CLUSTERS, ADDRESSES, st.integers(0, 2), TOPICS,
        st.booleans(), st.integers(0, 2),
    ),
    st.tuples(st.just("unregister"), NAMES, CLUSTERS, ADDRESSES),
    st.tuples(st.just("disconnect"), st.integers(0, 2)),
    st.tuples(st.just("expire"), st.integers(0, 200_000)),
    st.tuples(st.just("delete"), st.sampled_from(["t1", "t2"]), st.none() | CLUSTERS),
)  # fmt: skip


def do(table: RouteTable, step: tuple[object, ...], now_ms: int) -> int:
    match step:
        case ("register", str(name), str(cluster), str(address), int(number), names, flag, state):
            fields = broker(name, address, number, cluster=cluster, acting_master=bool(flag))
            content = topics(*names, version=now_ms, state=state)  # type: ignore[misc,arg-type]
            with contextlib.suppress(NotRegisteredYet):
                table.register(fields, content, now_ms, connection=number)
        case ("unregister", str(name), str(cluster), str(address)):
            table.unregister(BrokerFields(name, address, cluster))
        case ("disconnect", connection):
            table.disconnect(connection)
        case ("expire", int(elapsed_ms)):
            now_ms += elapsed_ms
            table.expire(now_ms)
        case ("delete", str(topic), cluster):
            table.delete_topic(topic, cluster)  # type: ignore[arg-type]
    return now_ms + 1


@settings(max_examples=300, deadline=None)
@given(st.lists(STEPS, max_size=30))
def test_the_tables_agree_with_each_other_whatever_happens(
    steps: list[tuple[object, ...]],
) -> None:
    table, now_ms = RouteTable(), NOW
    for step in steps:
        now_ms = do(table, step, now_ms)
        check_agreement(table)
    table.expire(now_ms + 10 * BROKER_TIMEOUT_MS)
    assert is_empty(table)


def check_agreement(table: RouteTable) -> None:
    alive = {endpoint.address for endpoint in table.broker_live_table}
    clusters = [(name, cluster) for cluster, ns in table.cluster_addr_table.items() for name in ns]
    brokers = table.broker_addr_table
    assert sorted(clusters) == sorted((name, data.cluster) for name, data in brokers.items())
    assert all(table.cluster_addr_table.values())
    for data in brokers.values():
        assert data.broker_addrs
        assert len(set(data.broker_addrs.values())) == len(data.broker_addrs)
        assert set(data.broker_addrs.values()) <= alive
    for queues in table.topic_queue_table.values():
        assert queues
        assert queues.keys() <= brokers.keys()


def test_a_topic_config_with_other_queues_for_reading_keeps_both_numbers(table: RouteTable) -> None:
    content = topics("x", "orders")
    content.topics.topic_config_table["orders"] = TopicConfig("orders", 8, 2)
    table.register(broker(), content, NOW)
    queues = table.topic_queue_table["orders"]["a"]
    assert (queues.read_queue_nums, queues.write_queue_nums) == (8, 2)
