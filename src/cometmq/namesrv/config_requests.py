"""Requests that read or change the NameServer's own settings.

A change takes all of its keys or none. It lasts until the server ends: files are the operator's.
"""

import logging

from cometmq.protocol.codes import RequestCode, ResponseCode
from cometmq.protocol.command import Command, Response
from cometmq.settings import (
    BadSetting,
    as_text,
    changed,
    declared,
    parse_properties,
    refuse_unknown,
)
from cometmq.transport.connection import Connection, Refusal

from .config import ROCKETMQ_KEYS, NamesrvConfig
from .state import Handle, NamesrvState

log = logging.getLogger(__name__)


def update_config(state: NamesrvState, connection: Connection, command: Command) -> Response:
    try:
        values = parse_properties(command.body.decode())
    except UnicodeDecodeError:
        raise Refusal(ResponseCode.SYSTEM_ERROR, "string2Properties error") from None
    if state.config.black_list() & values.keys():
        raise Refusal(ResponseCode.NO_PERMISSION, "Can not update config in black list.")
    try:
        without_effect = refuse_unknown(values, declared(NamesrvConfig), ROCKETMQ_KEYS)
        if without_effect:
            raise BadSetting(f"{', '.join(without_effect)}: of no effect here")
        state.reconfigure(changed(state.config, values))
    except BadSetting as error:
        raise Refusal(ResponseCode.SYSTEM_ERROR, str(error)) from None
    log.info("%s: settings changed: %s", connection.peer, values)
    return Response()


def get_config(state: NamesrvState, _: Connection, __: Command) -> Response:
    settings = as_text(state.config)
    lines = [f"{key}={settings[key]}\n" for key in sorted(settings)]
    return Response(body="".join(lines).encode())


HANDLERS: dict[int, Handle] = {
    RequestCode.UPDATE_NAMESRV_CONFIG: update_config,
    RequestCode.GET_NAMESRV_CONFIG: get_config,
}
