"""Requests of brokers: register, unregister, stay alive, find each other."""

import logging

import msgspec

from cometmq.protocol.codes import RequestCode, ResponseCode
from cometmq.protocol.command import Command, Response
from cometmq.protocol.data_version import DataVersion
from cometmq.protocol.fastjson import decode_body
from cometmq.protocol.registration import (
    BrokerFields,
    DataVersionAnswer,
    RegisterFields,
    body_crc32,
    decode_registration,
    header_fields,
)
from cometmq.protocol.routes import KvTable, MemberGroupAnswer
from cometmq.transport.connection import Connection, Refusal

from .kv_config import ORDER_TOPIC_CONFIG
from .route_table import NotRegisteredYet
from .state import Handle, NamesrvState

log = logging.getLogger(__name__)


class MemberGroupFields(msgspec.Struct, rename="camel"):
    cluster_name: str
    broker_name: str


def register(state: NamesrvState, connection: Connection, command: Command) -> Response:
    fields = command.fields(RegisterFields)
    if fields.body_crc32 not in (0, body_crc32(command.body)):
        log.warning("%s: checksum of the registration of %s", connection.peer, fields.broker_name)
        raise Refusal(ResponseCode.SYSTEM_ERROR, "crc32 not match")
    content = decode_registration(
        command.body, compressed=fields.compressed, version=command.version
    )
    is_known = state.routes.data_version(fields.cluster_name, fields.broker_addr) is not None
    try:
        master = state.routes.register(
            fields,
            content,
            state.clock.now_ms(),
            connection=connection,
            drop_missing_topics=state.config.drop_missing_topics,
        )
    except NotRegisteredYet as error:
        log.warning("%s: %s", connection.peer, error)
        raise Refusal(ResponseCode.SYSTEM_ERROR, "register broker failed") from None
    if not is_known:
        log.info("broker %s (%d) at %s", fields.broker_name, fields.broker_id, fields.broker_addr)
    return Response(fields=header_fields(master), body=_order_topics(state))


def _order_topics(state: NamesrvState) -> bytes:
    found = state.kv.namespace(ORDER_TOPIC_CONFIG)
    if found is None or not state.config.return_order_topics:
        return b""
    return msgspec.json.encode(KvTable(found))


def unregister(state: NamesrvState, _: Connection, command: Command) -> Response:
    fields = command.fields(BrokerFields)
    state.routes.unregister(fields)
    log.info("broker %s (%d) left", fields.broker_name, fields.broker_id)
    return Response()


def heartbeat(state: NamesrvState, _: Connection, command: Command) -> Response:
    fields = command.fields(BrokerFields)
    state.routes.heartbeat(fields.cluster_name, fields.broker_addr, state.clock.now_ms())
    return Response()


def query_data_version(state: NamesrvState, _: Connection, command: Command) -> Response:
    """Whether a broker must register anew; asking counts as a sign of life."""
    fields = command.fields(BrokerFields)
    asked = decode_body(command.body, DataVersion, "data version")
    state.routes.heartbeat(fields.cluster_name, fields.broker_addr, state.clock.now_ms())
    known = state.routes.data_version(fields.cluster_name, fields.broker_addr)
    body = msgspec.json.encode(known) if known is not None else b""
    return Response(fields=header_fields(DataVersionAnswer(known != asked)), body=body)


def get_member_group(state: NamesrvState, _: Connection, command: Command) -> Response:
    fields = command.fields(MemberGroupFields)
    group = state.routes.member_group(fields.cluster_name, fields.broker_name)
    return Response(body=msgspec.json.encode(MemberGroupAnswer(group)))


HANDLERS: dict[int, Handle] = {
    RequestCode.REGISTER_BROKER: register,
    RequestCode.UNREGISTER_BROKER: unregister,
    RequestCode.QUERY_DATA_VERSION: query_data_version,
    RequestCode.GET_BROKER_MEMBER_GROUP: get_member_group,
    RequestCode.BROKER_HEARTBEAT: heartbeat,
}
