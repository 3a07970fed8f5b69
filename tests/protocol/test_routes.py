"""Bodies of NameServers, against what a real one sent."""

import msgspec

from cometmq.protocol.fastjson import decode_body
from cometmq.protocol.routes import (
    BrokerData,
    ClusterInfo,
    MemberGroup,
    MemberGroupAnswer,
    QueueData,
    QueueMapping,
    TopicList,
    TopicRoute,
)
from tests.namesrv.captured import CLUSTER_INFO_BODY, ROUTE_BODY

BROKER = BrokerData({0: "127.0.0.1:10921"}, "broker-a", "DefaultCluster")
QUEUES = QueueData("broker-a", perm=7, read_queue_nums=8, write_queue_nums=8)


def test_a_route_is_written_byte_for_byte_as_rocketmq_writes_it() -> None:
    assert msgspec.json.encode(TopicRoute([BROKER], {}, queue_datas=[QUEUES])) == ROUTE_BODY


def test_a_route_of_rocketmq_is_read() -> None:
    route = decode_body(ROUTE_BODY, TopicRoute, "route")
    assert route == TopicRoute([BROKER], {}, queue_datas=[QUEUES])


def test_a_cluster_of_rocketmq_is_read_although_it_is_not_json() -> None:
    info = decode_body(CLUSTER_INFO_BODY, ClusterInfo, "cluster")
    assert info == ClusterInfo({"broker-a": BROKER}, {"DefaultCluster": ["broker-a"]})


def test_a_cluster_is_written_with_quoted_ids_and_no_blanks() -> None:
    written = msgspec.json.encode(ClusterInfo({"b": BROKER}, {"c": ["b"]}))
    assert written == (
        b'{"brokerAddrTable":{"b":{"brokerAddrs":{"0":"127.0.0.1:10921"},"brokerName":"broker-a",'
        b'"cluster":"DefaultCluster","enableActingMaster":false}},"clusterAddrTable":{"c":["b"]}}'
    )


def test_what_a_route_may_have_besides_stands_in_it_when_it_is_there() -> None:
    mapping = QueueMapping("broker-a", {0: 1}, topic="static", total_queues=2)
    route = TopicRoute(
        [BrokerData({0: "h:1"}, "b", "c", zone_name="east")],
        {"h:1": ["f:1"]},
        "broker-a:4",
        [QUEUES],
        {"broker-a": mapping},
    )
    again = msgspec.json.decode(msgspec.json.encode(route))
    assert again["brokerDatas"][0]["zoneName"] == "east"
    assert again["filterServerTable"] == {"h:1": ["f:1"]}
    assert again["orderTopicConf"] == "broker-a:4"
    assert again["topicQueueMappingByBroker"]["broker-a"]["currIdMap"] == {"0": 1}


def test_other_answers_have_rocketmqs_names() -> None:
    group = MemberGroupAnswer(MemberGroup({0: "h:1", 1: "h:2"}, "b", "c"))
    assert msgspec.json.encode(group) == (
        b'{"brokerMemberGroup":{"brokerAddrs":{"0":"h:1","1":"h:2"},"brokerName":"b","cluster":"c"}}'
    )
    assert msgspec.json.encode(TopicList(topic_list=["t"])) == b'{"topicList":["t"]}'
    assert msgspec.json.encode(TopicList("h:1", [])) == b'{"brokerAddr":"h:1","topicList":[]}'
