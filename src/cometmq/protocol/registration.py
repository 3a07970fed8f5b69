"""What brokers tell NameServers about themselves: headers and bodies of codes 103, 104, 322, 904.

A registration's body is JSON, or (`compressed`) a zlib stream of chunks, each after its length as
int32: data version as JSON · int32 number of topics · each topic as text · filter servers as JSON
· since 5.0 int32 number of queue mappings · each mapping as JSON. Ours go as JSON. What a
compressed body may unfold to is bounded.
"""

import struct
import zlib
from typing import Any, Final

import msgspec

from .codes import RequestCode
from .command import Request, as_text
from .data_version import DataVersion
from .fastjson import MalformedBody, decode_body
from .numbers import Int32, Int64
from .routes import QueueMapping
from .topic_config import TopicConfig, TopicConfigs

INFLATED_BYTES_MAX: Final = 64 * 1024**2
TOPICS_MAX: Final = 200_000
"""Topics in one registration; brokers with more than some hundreds send them in parts."""

_BODY_SINCE: Final = 37
"""Protocol version (3.0.11) below which the body is the table of topics alone."""
_MAPPINGS_SINCE: Final = 413
"""Protocol version (5.0.0) below which a compressed body has no queue mappings."""
_ZLIB_FIRST_BYTE: Final = 0x78
_INT = struct.Struct(">i")


class BrokerFields(msgspec.Struct, rename="camel"):
    """Who speaks: the header of UNREGISTER_BROKER and QUERY_DATA_VERSION."""

    broker_name: str
    broker_addr: str
    cluster_name: str
    broker_id: Int64 = 0


class RegisterFields(BrokerFields, rename="camel"):
    ha_server_addr: str = ""
    heartbeat_timeout_millis: Int64 | None = None
    enable_acting_master: bool | None = None
    """None from brokers before 5.0, which do not know of it."""
    compressed: bool = False
    body_crc32: Int32 = 0
    """0: not checked."""
    zone_name: str | None = msgspec.field(name="__ZONE_NAME", default=None)


class MasterFields(msgspec.Struct, rename="camel"):
    """The answer to a registration: where a slave finds its master."""

    ha_server_addr: str | None = None
    master_addr: str | None = None


class DataVersionAnswer(msgspec.Struct):
    changed: bool


class RegisteredTopics(TopicConfigs, rename="camel"):
    queue_mappings: dict[str, QueueMapping] = msgspec.field(
        name="topicQueueMappingInfoMap", default_factory=dict
    )


class Registration(msgspec.Struct, rename="camel"):
    """The body of REGISTER_BROKER."""

    filter_server_list: list[str] | None = []
    """None leaves those known before."""
    topic_config_serialize_wrapper: RegisteredTopics = msgspec.field(
        default_factory=RegisteredTopics
    )

    @property
    def topics(self) -> RegisteredTopics:
        return self.topic_config_serialize_wrapper


def register_request(fields: RegisterFields, topics: TopicConfigs) -> Request:
    """The registration of a broker, with a checksum of its body."""
    registered = RegisteredTopics(topics.topic_config_table, topics.data_version)
    body = msgspec.json.encode(Registration([], registered))
    sent = msgspec.structs.replace(fields, compressed=False, body_crc32=body_crc32(body))
    return Request(RequestCode.REGISTER_BROKER, header_fields(sent), body)


def unregister_request(fields: BrokerFields) -> Request:
    return Request(RequestCode.UNREGISTER_BROKER, header_fields(fields))


def query_data_version_request(fields: BrokerFields, version: DataVersion) -> Request:
    body = msgspec.json.encode(version)
    return Request(RequestCode.QUERY_DATA_VERSION, header_fields(fields), body)


def header_fields(fields: msgspec.Struct) -> dict[str, str]:
    """A header's fields as they travel; absent ones are left out."""
    found: dict[str, Any] = msgspec.to_builtins(fields)
    return {name: as_text(value) for name, value in found.items() if value is not None}


def body_crc32(body: bytes) -> int:
    """The checksum of a body as RocketMQ sends it: without the sign bit."""
    return zlib.crc32(body) & 0x7FFFFFFF


def decode_registration(body: bytes, *, compressed: bool, version: int) -> Registration:
    """The body of a registration by a broker of that protocol version; MalformedBody otherwise."""
    if not body:
        return Registration()
    if version < _BODY_SINCE:
        topics = decode_body(body, RegisteredTopics, "table of topics")
        registration = Registration(None, topics)
    elif compressed or body[0] == _ZLIB_FIRST_BYTE:
        # Brokers of RocketMQ 5 compress when told to, but say in the header that they did not.
        registration = _decode_compressed(body, with_mappings=version >= _MAPPINGS_SINCE)
    else:
        registration = decode_body(body, Registration, "registration")
    _check_count(len(registration.topics.topic_config_table))
    return registration


def _decode_compressed(body: bytes, *, with_mappings: bool) -> Registration:
    chunks = _Chunks(_inflate(body))
    version = decode_body(chunks.take(), DataVersion, "data version of the registration")
    count = chunks.take_int()
    _check_count(count)
    topics = {}
    for _ in range(count):
        topic = _decode_topic(chunks.take())
        topics[topic.topic_name] = topic
    filters = decode_body(chunks.take(), list[str], "list of filter servers")
    mappings = {}
    if with_mappings:
        count = chunks.take_int()
        _check_count(count)
        for _ in range(count):
            mapping = decode_body(chunks.take(), QueueMapping, "queue mapping")
            mappings[mapping.topic] = mapping
    return Registration(filters, RegisteredTopics(topics, version, mappings))


def _inflate(body: bytes) -> bytes:
    try:
        inflated = zlib.decompressobj().decompress(body, INFLATED_BYTES_MAX + 1)
    except zlib.error as error:
        raise MalformedBody(f"the registration cannot be decompressed: {error}") from None
    if len(inflated) > INFLATED_BYTES_MAX:
        raise MalformedBody(
            f"the registration has more than {INFLATED_BYTES_MAX} bytes when decompressed"
        )
    return inflated


def _check_count(count: int) -> None:
    if not 0 <= count <= TOPICS_MAX:
        raise MalformedBody(f"a registration of {count} topics; {TOPICS_MAX} are allowed")


def _decode_topic(text: bytes) -> TopicConfig:
    """`name read-queues write-queues permission filter-type [attributes]`."""
    try:
        name, read, write, perm, filter_type, *rest = text.decode().split(" ", 5)
        topic = TopicConfig(name, int(read), int(write), int(perm), filter_type)
    except ValueError:
        raise MalformedBody(f"a topic of the registration cannot be read: {text[:200]!r}") from None
    if rest and rest[0]:
        topic.attributes = decode_body(rest[0].encode(), dict[str, str], "attributes of a topic")
    return topic


class _Chunks:
    """Reads a decompressed registration from its beginning."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def take_int(self) -> int:
        if self._at + 4 > len(self._data):
            raise MalformedBody("the registration ends early")
        (value,) = _INT.unpack_from(self._data, self._at)
        self._at += 4
        return int(value)

    def take(self) -> bytes:
        size = self.take_int()
        start, end = self._at, self._at + size
        if size < 0 or end > len(self._data):
            raise MalformedBody("the registration ends early")
        self._at = end
        return self._data[start:end]
