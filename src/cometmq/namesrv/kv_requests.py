"""Requests about the key-value configuration."""

import msgspec

from cometmq.protocol.codes import RequestCode, ResponseCode
from cometmq.protocol.command import Command, Response
from cometmq.protocol.routes import KvTable
from cometmq.transport.connection import Connection, Refusal

from .state import Handle, NamesrvState


class NamespaceFields(msgspec.Struct):
    namespace: str


class KeyFields(msgspec.Struct):
    namespace: str
    key: str


class PutFields(msgspec.Struct):
    namespace: str | None = None
    key: str | None = None
    value: str = ""


def put(state: NamesrvState, _: Connection, command: Command) -> Response:
    fields = command.fields(PutFields)
    if fields.namespace is None or fields.key is None:
        raise Refusal(ResponseCode.SYSTEM_ERROR, "namespace or key is null")
    try:
        state.kv.put(fields.namespace, fields.key, fields.value)
    except OSError as error:
        raise _not_kept(error) from error
    return Response()


def get(state: NamesrvState, _: Connection, command: Command) -> Response:
    fields = command.fields(KeyFields)
    value = state.kv.get(fields.namespace, fields.key)
    if value is None:
        remark = f"No config item, Namespace: {fields.namespace} Key: {fields.key}"
        return Response(ResponseCode.QUERY_NOT_FOUND, remark)
    return Response(fields={"value": value})


def delete(state: NamesrvState, _: Connection, command: Command) -> Response:
    fields = command.fields(KeyFields)
    try:
        state.kv.delete(fields.namespace, fields.key)
    except OSError as error:
        raise _not_kept(error) from error
    return Response()


def get_namespace(state: NamesrvState, _: Connection, command: Command) -> Response:
    namespace = command.fields(NamespaceFields).namespace
    found = state.kv.namespace(namespace)
    if found is None:
        remark = f"No config item, Namespace: {namespace}"
        return Response(ResponseCode.QUERY_NOT_FOUND, remark)
    return Response(body=msgspec.json.encode(KvTable(found)))


def _not_kept(error: OSError) -> Refusal:
    return Refusal(ResponseCode.SYSTEM_ERROR, f"kvConfig.json cannot be written: {error}")


HANDLERS: dict[int, Handle] = {
    RequestCode.PUT_KV_CONFIG: put,
    RequestCode.GET_KV_CONFIG: get,
    RequestCode.DELETE_KV_CONFIG: delete,
    RequestCode.GET_KVLIST_BY_NAMESPACE: get_namespace,
}
