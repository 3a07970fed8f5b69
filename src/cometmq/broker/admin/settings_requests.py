"""Requests that read or change the settings of a broker."""

import logging
import os

import msgspec

from cometmq.protocol.codes import RequestCode, ResponseCode
from cometmq.protocol.command import Command, Response
from cometmq.protocol.data_version import DataVersion
from cometmq.settings import BadSetting, parse_properties
from cometmq.transport.connection import Connection, Handlers, Refusal

from ..context import Context
from ..live_settings import change

log = logging.getLogger(__name__)
BLACK_LIST = frozenset({"configBlackList", "brokerConfigPath"})
_PROCESSORS = "clientCallbackExecutorThreads"
"""Where RocketMQ's tools look for the number of processors."""


class SettingsRequests:
    def __init__(self, context: Context) -> None:
        self._context = context
        self._version = DataVersion(0, context.clock.now_ms(), 0)

    def handlers(self) -> Handlers:
        return {
            RequestCode.UPDATE_BROKER_CONFIG: self.update,
            RequestCode.GET_BROKER_CONFIG: self.show,
        }

    def show(self, _: Connection, __: Command) -> Response:
        settings = {**self._context.settings(), _PROCESSORS: str(os.cpu_count() or 1)}
        # The port in use, also where any free one was asked for.
        settings["listenPort"] = str(self._context.address.port)
        lines = [f"{key}={settings[key]}\n" for key in sorted(settings)]
        version = msgspec.json.encode(self._version).decode()
        return Response(fields={"version": version}, body="".join(lines).encode())

    async def update(self, connection: Connection, command: Command) -> Response:
        try:
            values = parse_properties(command.body.decode())
        except UnicodeDecodeError:
            raise Refusal(ResponseCode.SYSTEM_ERROR, "string2Properties error") from None
        if BLACK_LIST & values.keys():
            raise Refusal(ResponseCode.NO_PERMISSION, "Can not update config in black list.")
        try:
            await change(self._context, values)
        except BadSetting as error:
            raise Refusal(ResponseCode.SYSTEM_ERROR, str(error)) from None
        self._version = self._version.next(self._context.clock.now_ms())
        log.info("%s: settings changed: %s", connection.peer, values)
        return Response()
