"""Requests that read or change the settings of a broker.

A change takes all of its keys or none. It lasts until the broker ends: files are the operator's.
"""

import logging
import os
from collections.abc import Collection

import msgspec

from cometmq.protocol.codes import RequestCode, ResponseCode
from cometmq.protocol.command import Command, Response
from cometmq.protocol.data_version import DataVersion
from cometmq.settings import BadSetting, changed, declared, parse_properties, refuse_unknown
from cometmq.store.config import StoreConfig
from cometmq.transport.connection import Connection, Handlers, Refusal

from ..config import BrokerConfig
from ..context import Context
from ..rocketmq_keys import ROCKETMQ_KEYS

log = logging.getLogger(__name__)
BLACK_LIST = frozenset({"configBlackList", "brokerConfigPath"})
_SECRET = frozenset({"tls.server.keyPassword"})
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
        lines = [f"{key}={settings[key]}\n" for key in sorted(settings.keys() - _SECRET)]
        version = msgspec.json.encode(self._version).decode()
        return Response(fields={"version": version}, body="".join(lines).encode())

    async def update(self, connection: Connection, command: Command) -> Response:
        try:
            values = parse_properties(command.body.decode())
        except UnicodeDecodeError:
            raise Refusal(ResponseCode.SYSTEM_ERROR, "string2Properties error") from None
        if BLACK_LIST & values.keys():
            raise Refusal(ResponseCode.NO_PERMISSION, "Can not update config in black list.")
        permission = self._context.config.permission
        try:
            self._apply(values)
        except BadSetting as error:
            raise Refusal(ResponseCode.SYSTEM_ERROR, str(error)) from None
        self._version = self._version.next(self._context.clock.now_ms())
        log.info("%s: settings changed: %s", connection.peer, values)
        if self._context.config.permission != permission:
            self._context.topics.renew()
            await self._context.announce()
        return Response()

    def _apply(self, values: dict[str, str]) -> None:
        context = self._context
        brokers, stores = declared(BrokerConfig), declared(StoreConfig)
        without_effect = refuse_unknown(values, {**brokers, **stores}, ROCKETMQ_KEYS)
        if without_effect:
            raise BadSetting(f"{', '.join(without_effect)}: of no effect here")
        # Both first: a change that is wrong in one must not be made in the other.
        config = changed(context.config, _only(values, brokers))
        store_config = changed(context.store.config, _only(values, stores))
        if store_config != context.store.config:
            context.store.reconfigure(store_config)
        self._reconfigure(config)

    def _reconfigure(self, config: BrokerConfig) -> None:
        context = self._context
        context.config = config
        context.topics.reconfigure(config)
        context.groups.reconfigure(config)
        context.archive.reconfigure(config)
        context.waiting_pulls.held_max = config.pulls_held_max


def _only(values: dict[str, str], known: Collection[str]) -> dict[str, str]:
    return {key: value for key, value in values.items() if key in known}
