"""Every request that a NameServer answers, over real sockets."""

from pathlib import Path

import msgspec
import pytest

from cometmq.namesrv.config import NamesrvConfig
from cometmq.protocol.codes import RequestCode, ResponseCode
from cometmq.protocol.command import Request
from cometmq.protocol.data_version import DataVersion
from cometmq.protocol.registration import BrokerFields, header_fields
from cometmq.protocol.routes import KvTable, MemberGroupAnswer, QueueData, TopicList, TopicRoute
from cometmq.protocol.topic_config import TopicConfig
from tests.transport.peers import Peer

from .brokers import CLUSTER, broker, topics
from .captured import (
    COMPRESSED_REGISTRATION,
    NO_ROUTE_REMARK,
    REGISTER_FRAME,
    REGISTER_ONE_TOPIC_FRAME,
    ROUTE_BODY,
    UNREGISTER_FRAME,
)
from .clients import TIMEOUT_S, running

OK, FAILED = ResponseCode.SUCCESS, ResponseCode.SYSTEM_ERROR
SLAVE = "10.0.0.2:10911"


def identity(address: str = "10.0.0.1:10911") -> dict[str, str]:
    return header_fields(BrokerFields("a", address, CLUSTER))


# -- brokers ---------------------------------------------------------------------------------------


async def test_frames_of_a_real_broker_are_answered_as_rocketmq_answers_them() -> None:
    async with running() as namesrv:
        with await Peer.to(namesrv.server.address) as real:
            await real.send(REGISTER_ONE_TOPIC_FRAME)
            refused = await real.answer()
            assert (refused.code, refused.remark) == (FAILED, "register broker failed")

            await real.send(REGISTER_FRAME + REGISTER_ONE_TOPIC_FRAME)
            full, one = await real.answers(2)
            assert (full.code, full.opaque, full.text_fields(), full.body) == (OK, 0, {}, b"")
            assert (one.code, one.opaque) == (OK, 130)

            answer = await namesrv.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, topic="TBW102")
            assert answer.body == ROUTE_BODY
            assert (await namesrv.route("wiretest2")).queue_datas[0].read_queue_nums == 4

            await real.send(UNREGISTER_FRAME)
            assert (await real.answer()).code == OK
            assert await namesrv.brokers() == []


async def test_a_compressed_registration_is_taken() -> None:
    async with running() as namesrv:
        fields = header_fields(msgspec.structs.replace(broker(), compressed=True))
        answer = await namesrv.ask(RequestCode.REGISTER_BROKER, COMPRESSED_REGISTRATION, **fields)
        assert answer.code == OK
        assert (await namesrv.route("BenchmarkTest")).queue_datas[0].read_queue_nums == 1024


async def test_a_registration_with_another_checksum_is_refused() -> None:
    async with running() as namesrv:
        fields = header_fields(msgspec.structs.replace(broker(), body_crc32=1))
        answer = await namesrv.ask(RequestCode.REGISTER_BROKER, b"{}", **fields)
        assert (answer.code, answer.remark) == (FAILED, "crc32 not match")
        assert await namesrv.brokers() == []


@pytest.mark.parametrize(
    "body",
    [b"{", b"[]", b"\x78\x9cx", b"\xff", b"[" * 50_000],
    ids=["cut", "list", "zlib", "x", "deep"],
)
async def test_a_registration_that_cannot_be_read_is_refused_and_the_server_goes_on(
    body: bytes,
) -> None:
    async with running() as namesrv:
        answer = await namesrv.ask(RequestCode.REGISTER_BROKER, body, **header_fields(broker()))
        assert answer.code == FAILED
        assert answer.remark is not None
        assert "the registration" in answer.remark
        assert (await namesrv.register()).code == OK


async def test_a_registration_without_its_fields_is_refused() -> None:
    async with running() as namesrv:
        answer = await namesrv.ask(RequestCode.REGISTER_BROKER, b"{}", brokerName="a")
        assert answer.code == FAILED
        assert "brokerAddr" in (answer.remark or "")


async def test_a_broker_learns_its_master_and_the_order_of_topics() -> None:
    async with running() as namesrv:
        await namesrv.register(broker(ha="ha:1"))
        await namesrv.ask(
            RequestCode.PUT_KV_CONFIG, namespace="ORDER_TOPIC_CONFIG", key="orders", value="a:4"
        )
        answer = await namesrv.register(broker(address=SLAVE, broker_id=1))
        assert answer.text_fields() == {"haServerAddr": "ha:1", "masterAddr": "10.0.0.1:10911"}
        assert answer.body == b'{"table":{"orders":"a:4"}}'

        await namesrv.ask(
            RequestCode.UPDATE_NAMESRV_CONFIG, b"returnOrderTopicConfigToBroker=false"
        )
        assert (await namesrv.register()).body == b""


async def test_a_broker_asks_whether_it_must_register_anew() -> None:
    known, other = b'{"stateVersion":0,"timestamp":0,"counter":1}', b'{"counter":2}'
    async with running() as namesrv:
        code = RequestCode.QUERY_DATA_VERSION
        answer = await namesrv.ask(code, known, **identity())
        assert (answer.text_fields(), answer.body) == ({"changed": "true"}, b"")
        await namesrv.register(content=topics("orders", "bills", version=1))
        answer = await namesrv.ask(code, known, **identity())
        assert answer.text_fields() == {"changed": "false"}
        assert msgspec.json.decode(answer.body, type=DataVersion) == DataVersion(0, 0, 1)
        answer = await namesrv.ask(code, other, **identity())
        assert answer.text_fields() == {"changed": "true"}
        answer = await namesrv.ask(code, b"", **identity())
        assert answer.code == FAILED
        assert "data version" in (answer.remark or "")


@pytest.mark.parametrize(
    ("code", "body"),
    [(RequestCode.BROKER_HEARTBEAT, b""), (RequestCode.QUERY_DATA_VERSION, b"{}")],
)
async def test_signs_of_life_keep_a_broker(code: RequestCode, body: bytes) -> None:
    async with running() as namesrv:
        await namesrv.register(broker(timeout_ms=1000))
        namesrv.clock.advance(900)
        assert (await namesrv.ask(code, body, **identity())).code == OK
        namesrv.clock.advance(900)
        namesrv.server.scan()
        assert await namesrv.brokers() == ["a"]


async def test_brokers_of_one_name_are_told_as_a_group() -> None:
    async with running() as namesrv:
        await namesrv.register()
        await namesrv.register(broker(address=SLAVE, broker_id=1))
        answer = await namesrv.told(
            RequestCode.GET_BROKER_MEMBER_GROUP,
            MemberGroupAnswer,
            clusterName=CLUSTER,
            brokerName="a",
        )
        assert answer.broker_member_group.broker_addrs == {0: "10.0.0.1:10911", 1: SLAVE}


async def test_deleted_topics_go_with_a_registration_if_so_configured() -> None:
    async with running(NamesrvConfig(drop_missing_topics=True)) as namesrv:
        await namesrv.register(content=topics("orders", "bills"))
        await namesrv.register(content=topics("orders", "news", version=2))
        listed = await namesrv.told(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER, TopicList)
        assert listed.topic_list == ["orders", "news"]


# -- routes and topics -----------------------------------------------------------------------------


async def test_a_topic_that_nobody_has_is_answered_in_rocketmqs_words() -> None:
    async with running() as namesrv:
        answer = await namesrv.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, topic="wiretest")
        assert (answer.code, answer.remark) == (ResponseCode.TOPIC_NOT_EXIST, NO_ROUTE_REMARK)
        answer = await namesrv.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC)
        assert answer.code == FAILED


async def test_old_clients_get_standard_json_too() -> None:
    async with running() as namesrv:
        await namesrv.register()
        with await Peer.to(namesrv.server.address) as old:
            header = b'{"code":105,"version":121,"opaque":1,"extFields":{"topic":"orders"}}'
            size = len(header)
            await old.send((size + 4).to_bytes(4, "big") + size.to_bytes(4, "big") + header)
            answer = await old.answer()
        assert b'"brokerAddrs":{"0":"10.0.0.1:10911"}' in answer.body


async def test_the_order_of_a_topic_is_told_only_if_so_configured() -> None:
    async with running() as namesrv:
        await namesrv.register()
        await namesrv.ask(
            RequestCode.PUT_KV_CONFIG, namespace="ORDER_TOPIC_CONFIG", key="orders", value="a:4"
        )
        assert (await namesrv.route("orders")).order_topic_conf is msgspec.UNSET
        await namesrv.ask(RequestCode.UPDATE_NAMESRV_CONFIG, b"orderMessageEnable=true\n")
        assert (await namesrv.route("orders")).order_topic_conf == "a:4"
        assert (await namesrv.route("bills")).order_topic_conf is msgspec.UNSET


async def test_no_route_is_told_before_brokers_had_time_to_register() -> None:
    config = NamesrvConfig(wait_for_service=True, wait_for_service_s=45)
    async with running(config) as namesrv:
        await namesrv.register()
        answer = await namesrv.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, topic="orders")
        assert (answer.code, answer.remark) == (FAILED, "name server not ready")
        namesrv.clock.advance(45_000)
        await namesrv.register()
        assert (await namesrv.route("orders")).queue_datas


async def test_a_first_slave_stands_in_for_its_master_if_so_configured() -> None:
    async with running(NamesrvConfig(support_acting_master=True)) as namesrv:
        await namesrv.register(broker(address=SLAVE, broker_id=1, acting_master=True))
        assert (await namesrv.route("orders")).broker_datas[0].broker_addrs == {0: SLAVE}


async def test_write_permission_is_wiped_and_given_back() -> None:
    async with running() as namesrv:
        await namesrv.register()
        answer = await namesrv.ask(RequestCode.WIPE_WRITE_PERM_OF_BROKER, brokerName="a")
        assert answer.text_fields() == {"wipeTopicCount": "2"}
        assert (await namesrv.route("orders")).queue_datas[0].perm == 4
        answer = await namesrv.ask(RequestCode.ADD_WRITE_PERM_OF_BROKER, brokerName="a")
        assert answer.text_fields() == {"addTopicCount": "2"}
        assert (await namesrv.route("orders")).queue_datas[0].perm == 6


async def test_topics_are_deleted_by_cluster_or_everywhere() -> None:
    code = RequestCode.DELETE_TOPIC_IN_NAMESRV
    async with running() as namesrv:
        await namesrv.register()
        assert (await namesrv.ask(code, topic="orders", clusterName="other")).code == OK
        assert (await namesrv.route("orders")).queue_datas
        assert (await namesrv.ask(code, topic="orders", clusterName=CLUSTER)).code == OK
        assert (await namesrv.ask(code, topic="bills")).code == OK
        listed = await namesrv.told(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER, TopicList)
        assert listed.topic_list == []


async def test_a_single_topic_is_registered_for_a_known_broker() -> None:
    code = RequestCode.REGISTER_TOPIC_IN_NAMESRV
    async with running() as namesrv:
        await namesrv.register()
        body = msgspec.json.encode(TopicRoute(queue_datas=[QueueData("a", 6, 2, 0, 2)]))
        assert (await namesrv.ask(code, body, topic="news")).code == OK
        assert (await namesrv.route("news")).queue_datas[0].write_queue_nums == 2
        stranger = msgspec.json.encode(TopicRoute(queue_datas=[QueueData("b", 6, 2, 0, 2)]))
        assert (await namesrv.ask(code, stranger, topic="more")).code == OK
        answer = await namesrv.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, topic="more")
        assert answer.code == ResponseCode.TOPIC_NOT_EXIST


async def test_the_same_code_without_a_body_is_an_empty_yes() -> None:
    """ali-ons asks so for something else."""
    async with running() as namesrv:
        answer = await namesrv.ask(
            RequestCode.REGISTER_TOPIC_IN_NAMESRV, namespace="PROJECT_CONFIG", key="10.0.0.1"
        )
        assert (answer.code, answer.body) == (OK, b"")


async def test_topics_are_listed_by_cluster_and_kind() -> None:
    async with running() as namesrv:
        content = topics("orders", "unit")
        content.topics.topic_config_table["unit"] = TopicConfig("unit", topic_sys_flag=3)
        await namesrv.register(content=content)

        async def listed(code: RequestCode, **fields: str) -> list[str]:
            return (await namesrv.told(code, TopicList, **fields)).topic_list

        assert await listed(RequestCode.GET_TOPICS_BY_CLUSTER, cluster=CLUSTER) == [
            "orders",
            "unit",
        ]
        assert await listed(RequestCode.GET_TOPICS_BY_CLUSTER, cluster="other") == []
        assert await listed(RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_NS) == [CLUSTER, "a"]
        assert await listed(RequestCode.GET_UNIT_TOPIC_LIST) == ["unit"]
        assert await listed(RequestCode.GET_HAS_UNIT_SUB_TOPIC_LIST) == ["unit"]
        assert await listed(RequestCode.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST) == []


@pytest.mark.parametrize(
    ("key", "code"),
    [
        ("enableAllTopicList", RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER),
        ("enableTopicList", RequestCode.GET_TOPICS_BY_CLUSTER),
        ("enableTopicList", RequestCode.GET_UNIT_TOPIC_LIST),
    ],
)
async def test_lists_can_be_switched_off(key: str, code: RequestCode) -> None:
    async with running() as namesrv:
        await namesrv.ask(RequestCode.UPDATE_NAMESRV_CONFIG, f"{key}=false".encode())
        answer = await namesrv.ask(code, cluster=CLUSTER)
        assert (answer.code, answer.remark) == (FAILED, "disable")


# -- key-value configuration -----------------------------------------------------------------------


async def test_keys_and_values_are_kept_by_namespace(tmp_path: Path) -> None:
    config = NamesrvConfig(home=tmp_path)
    async with running(config) as namesrv:
        where = {"namespace": "n", "key": "k"}
        missing = await namesrv.ask(RequestCode.GET_KV_CONFIG, **where)
        assert (missing.code, missing.remark) == (
            ResponseCode.QUERY_NOT_FOUND,
            "No config item, Namespace: n Key: k",
        )
        missing = await namesrv.ask(RequestCode.GET_KVLIST_BY_NAMESPACE, namespace="n")
        assert (missing.code, missing.remark) == (
            ResponseCode.QUERY_NOT_FOUND,
            "No config item, Namespace: n",
        )
        assert (await namesrv.ask(RequestCode.PUT_KV_CONFIG, **where, value="v")).code == OK
        found = await namesrv.ask(RequestCode.GET_KV_CONFIG, **where)
        assert found.text_fields() == {"value": "v"}
    async with running(config) as namesrv:
        table = await namesrv.told(RequestCode.GET_KVLIST_BY_NAMESPACE, KvTable, namespace="n")
        assert table.table == {"k": "v"}
        assert (await namesrv.ask(RequestCode.DELETE_KV_CONFIG, **where)).code == OK
        assert (await namesrv.ask(RequestCode.GET_KV_CONFIG, **where)).code == 22


async def test_a_value_without_namespace_is_refused_in_rocketmqs_words() -> None:
    async with running() as namesrv:
        answer = await namesrv.ask(RequestCode.PUT_KV_CONFIG, key="k", value="v")
        assert (answer.code, answer.remark) == (FAILED, "namespace or key is null")


async def test_a_value_that_cannot_be_kept_is_refused(tmp_path: Path) -> None:
    config = NamesrvConfig(kv_config_path=tmp_path / "dir" / "kvConfig.json")
    async with running(config) as namesrv:
        (tmp_path / "dir").write_text("")
        answer = await namesrv.ask(RequestCode.PUT_KV_CONFIG, namespace="n", key="k", value="v")
        assert answer.code == FAILED
        assert "kvConfig.json cannot be written" in (answer.remark or "")
        assert (await namesrv.ask(RequestCode.GET_KV_CONFIG, namespace="n", key="k")).code == 22


# -- settings --------------------------------------------------------------------------------------


async def test_settings_are_told_without_secrets() -> None:
    async with running(NamesrvConfig(tls_key_password="secret")) as namesrv:
        answer = await namesrv.ask(RequestCode.GET_NAMESRV_CONFIG)
        lines = answer.body.decode().splitlines()
        assert "orderMessageEnable=false" in lines
        assert "scanNotActiveBrokerInterval=10000" in lines
        assert lines == sorted(lines)
        assert b"secret" not in answer.body


@pytest.mark.parametrize(
    ("body", "code", "remark"),
    [
        (b"kvConfigPath=/etc/passwd", 16, "Can not update config in black list."),
        (b"rocketmqHome=/", 16, "Can not update config in black list."),
        (b"configStorePath=/x", 16, "Can not update config in black list."),
        (b"scanNotActiveBrokerInterval=soon", 1, "a whole number is expected"),
        (b"scanNotActiveBrokerInterval=0", 1, "scanNotActiveBrokerInterval"),
        (b"listenPort=1", 1, "listenPort cannot be changed while the server runs"),
        (b"orderMessageEnabled=true", 1, "did you mean orderMessageEnable?"),
        (b"serverWorkerThreads=3", 1, "serverWorkerThreads: of no effect here"),
        (b"orderMessageEnable=true\nlistenPort=1", 1, "listenPort"),
        (b"orderMessageEnable=true\nkvConfigPath=/x", 16, "black list"),
        (b"\xff=1", 1, "string2Properties error"),
    ],
)
async def test_a_change_that_cannot_be_is_refused_as_a_whole(
    body: bytes, code: int, remark: str
) -> None:
    async with running() as namesrv:
        before = (await namesrv.ask(RequestCode.GET_NAMESRV_CONFIG)).body
        answer = await namesrv.ask(RequestCode.UPDATE_NAMESRV_CONFIG, body)
        assert answer.code == code
        assert remark in (answer.remark or "")
        assert (await namesrv.ask(RequestCode.GET_NAMESRV_CONFIG)).body == before


async def test_the_black_list_can_be_longer() -> None:
    async with running(NamesrvConfig(config_black_list="orderMessageEnable")) as namesrv:
        answer = await namesrv.ask(RequestCode.UPDATE_NAMESRV_CONFIG, b"orderMessageEnable=true")
        assert answer.code == ResponseCode.NO_PERMISSION


# -- others ----------------------------------------------------------------------------------------


async def test_what_a_name_server_does_not_know_is_said_so() -> None:
    async with running() as namesrv:
        answer = await namesrv.ask(RequestCode.SEND_MESSAGE)
        assert (answer.code, answer.remark) == (3, " request type 10 not supported")


async def test_one_way_requests_are_not_answered() -> None:
    async with running() as namesrv:
        namesrv.connection.tell(Request(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": "none"}))
        answer = await namesrv.connection.request(
            Request(RequestCode.GET_BROKER_CLUSTER_INFO), TIMEOUT_S
        )
        assert answer.code == OK
