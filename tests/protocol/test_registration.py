"""Registrations of brokers: real ones, our own, and those that somebody made up."""

import struct
import tracemalloc
import zlib
from collections.abc import Sequence

import msgspec
import pytest

from cometmq.protocol.codes import PROTOCOL_VERSION
from cometmq.protocol.command import Command, FrameParser, encode_request
from cometmq.protocol.data_version import DataVersion
from cometmq.protocol.fastjson import MalformedBody
from cometmq.protocol.registration import (
    INFLATED_BYTES_MAX,
    TOPICS_MAX,
    BrokerFields,
    RegisterFields,
    Registration,
    body_crc32,
    decode_registration,
    query_data_version_request,
    register_request,
    unregister_request,
)
from cometmq.protocol.routes import QueueMapping
from cometmq.protocol.topic_config import TopicConfig, TopicConfigs
from tests.namesrv.captured import (
    COMPRESSED_REGISTRATION,
    REGISTER_FRAME,
    REGISTER_ONE_TOPIC_FRAME,
    UNREGISTER_FRAME,
)

MIB = 1024**2
OLD_VERSION, VERSION_4 = 36, 407


def only_command(frame: bytes) -> Command:
    (command,) = FrameParser().feed(frame)
    return command


def compressed(*parts: bytes | int | str) -> bytes:
    """A compressed body: texts with their lengths, numbers as they are."""
    pieces = []
    for part in parts:
        if isinstance(part, int):
            pieces.append(struct.pack(">i", part))
        else:
            content = part.encode() if isinstance(part, str) else part
            pieces += [struct.pack(">i", len(content)), content]
    return zlib.compress(b"".join(pieces))


def decode(body: bytes, *, is_compressed: bool = False, version: int = 513) -> Registration:
    return decode_registration(body, compressed=is_compressed, version=version)


def test_the_registration_of_a_real_broker_is_read() -> None:
    command = only_command(REGISTER_FRAME)
    fields = command.fields(RegisterFields)
    assert fields == RegisterFields(
        broker_name="broker-a",
        broker_addr="127.0.0.1:10921",
        cluster_name="DefaultCluster",
        broker_id=0,
        ha_server_addr="127.0.0.1:10922",
        enable_acting_master=False,
        body_crc32=1686167213,
    )
    assert body_crc32(command.body) == fields.body_crc32

    content = decode(command.body)
    assert content.filter_server_list == []
    assert content.topics.data_version == DataVersion(0, 1794781630356, 0)
    assert len(content.topics.topic_config_table) == 15
    assert content.topics.topic_config_table["TBW102"] == TopicConfig("TBW102", 8, 8, 7)


def test_the_registration_of_one_new_topic_is_read() -> None:
    content = decode(only_command(REGISTER_ONE_TOPIC_FRAME).body)
    assert content.topics.topic_config_table == {"wiretest2": TopicConfig("wiretest2", 4, 4, 6)}
    assert content.topics.data_version.counter == 3


@pytest.mark.parametrize("told", [True, False], ids=["told", "not-told"])
def test_a_compressed_registration_of_a_real_broker_is_read_also_if_its_header_denies_it(
    told: bool,
) -> None:
    content = decode(COMPRESSED_REGISTRATION, is_compressed=told)
    assert content.filter_server_list == []
    assert content.topics.data_version == DataVersion(0, 1794820948789, 0)
    assert len(content.topics.topic_config_table) == 14
    assert content.topics.topic_config_table["BenchmarkTest"] == TopicConfig(
        "BenchmarkTest", 1024, 1024, 6
    )


def test_attributes_filter_servers_and_queue_mappings_are_read_from_the_compressed_form() -> None:
    body = compressed(
        '{"counter":1,"stateVersion":2,"timestamp":3}',
        1,
        'orders 4 8 6 SINGLE_TAG {"message.type":"FIFO OR NOT"}',
        '["10.0.0.1:5"]',
        1,
        '{"bname":"b","currIdMap":{0:1},"dirty":false,"epoch":7,"topic":"static","totalQueues":2}',
    )
    content = decode(body, is_compressed=True)
    assert content.topics.data_version == DataVersion(2, 3, 1)
    assert content.topics.topic_config_table["orders"] == TopicConfig(
        "orders", 4, 8, 6, attributes={"message.type": "FIFO OR NOT"}
    )
    assert content.filter_server_list == ["10.0.0.1:5"]
    assert content.topics.queue_mappings == {
        "static": QueueMapping("b", {0: 1}, epoch=7, topic="static", total_queues=2)
    }


def test_brokers_before_5_send_no_queue_mappings() -> None:
    body = compressed("{}", 1, "orders 4 8 6 SINGLE_TAG", "[]")
    assert list(decode(body, is_compressed=True, version=VERSION_4).topics.topic_config_table) == [
        "orders"
    ]
    with pytest.raises(MalformedBody, match="ends early"):
        decode(body, is_compressed=True)


def test_queue_mappings_with_bare_numbers_as_keys_are_read_from_json() -> None:
    body = (
        b'{"topicConfigSerializeWrapper":{"topicConfigTable":{},"topicQueueMappingInfoMap":'
        b'{"static":{"bname":"b","currIdMap":{0:0,1:2},"topic":"static","totalQueues":2}},'
        b'"topicQueueMappingDetailMap":{"static":{"hostedQueues":{0:[{"gen":0}]}}}}}'
    )
    mapping = decode(body).topics.queue_mappings["static"]
    assert mapping.curr_id_map == {0: 0, 1: 2}


def test_the_oldest_brokers_send_the_topics_alone() -> None:
    body = b'{"topicConfigTable":{"t":{"topicName":"t"}},"dataVersion":{"counter":9}}'
    content = decode(body, version=OLD_VERSION)
    assert content.topics.topic_config_table["t"].topic_name == "t"
    assert content.topics.data_version.counter == 9
    assert content.filter_server_list is None


def test_a_registration_without_body_has_no_topics() -> None:
    assert decode(b"") == Registration()


def test_our_own_registration_is_one_that_we_read() -> None:
    topics = TopicConfigs(
        {"orders": TopicConfig("orders", 4, 4, attributes={"a": "b"})}, DataVersion(0, 5, 6)
    )
    fields = RegisterFields("broker-b", "10.0.0.1:1", "c", ha_server_addr="10.0.0.1:2")
    command = only_command(b"".join(encode_request(register_request(fields, topics), 1)))
    read = command.fields(RegisterFields)
    assert command.version == PROTOCOL_VERSION
    assert read.body_crc32 == body_crc32(command.body) != 0
    assert msgspec.structs.replace(read, body_crc32=0) == fields
    content = decode(command.body)
    assert content.topics.topic_config_table == topics.topic_config_table
    assert content.topics.data_version == topics.data_version


def test_our_own_farewell_says_what_rocketmqs_says() -> None:
    real = only_command(UNREGISTER_FRAME)
    request = unregister_request(
        BrokerFields("broker-a", "127.0.0.1:10921", "DefaultCluster", broker_id=0)
    )
    assert request.code == real.code
    assert request.fields == real.text_fields()


def test_the_question_for_changes_carries_the_data_version() -> None:
    request = query_data_version_request(BrokerFields("b", "h:1", "c"), DataVersion(1, 2, 3))
    assert request.body == b'{"stateVersion":1,"timestamp":2,"counter":3}'
    assert request.fields["brokerAddr"] == "h:1"


@pytest.mark.parametrize(
    "body",
    [
        b"no json",
        b"[]",
        b'{"topicConfigSerializeWrapper":3}',
        b'{"topicConfigSerializeWrapper":{"topicConfigTable":{"t":{}}}}',
        b"\x78no zlib",
        b"\xff",
    ],
)
def test_what_is_no_registration_is_malformed(body: bytes) -> None:
    with pytest.raises(MalformedBody, match="registration"):
        decode(body)


@pytest.mark.parametrize(
    "parts",
    [
        (),
        ("{}",),
        ("{}", 1),
        ("{}", 1, "orders 4 8"),
        ("{}", 1, "orders four 8 6 SINGLE_TAG"),
        ("{}", 1, b"\xff 4 8 6 SINGLE_TAG", "[]", 0),
        ("{}", -1, "[]", 0),
        ("{}", TOPICS_MAX + 1),
        ("{}", 0, "{}", 0),
        ("{}", 0, "[]", 1, "[]"),
        ("{}", 0, "[]", -1),
        ("no json", 0, "[]", 0),
        (2**31 - 1,),
        (-1,),
    ],
)
def test_what_is_wrong_inside_the_compressed_form_is_malformed(
    parts: Sequence[bytes | int | str],
) -> None:
    with pytest.raises(MalformedBody):
        decode(compressed(*parts), is_compressed=True)


def test_a_small_body_cannot_unfold_without_bounds() -> None:
    zeros = bytes(4 * MIB)
    compressor = zlib.compressobj(9)
    bomb = b"".join(compressor.compress(zeros) for _ in range(20)) + compressor.flush()
    assert len(bomb) < MIB
    tracemalloc.start()
    try:
        with pytest.raises(MalformedBody, match=str(INFLATED_BYTES_MAX)):
            decode(bomb, is_compressed=True)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 2 * INFLATED_BYTES_MAX + 16 * MIB


def test_more_topics_than_a_registration_may_have_are_refused() -> None:
    table = ",".join(f'"{n}":{{"topicName":"{n}"}}' for n in range(TOPICS_MAX + 1))
    body = f'{{"topicConfigSerializeWrapper":{{"topicConfigTable":{{{table}}}}}}}'.encode()
    with pytest.raises(MalformedBody, match=f"{TOPICS_MAX} are allowed"):
        decode(body)
