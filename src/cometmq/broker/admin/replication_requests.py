"""What slaves ask their master beside the tables that tools ask for, and how replication goes."""

from collections.abc import Mapping

from cometmq.protocol.codes import RequestCode, ResponseCode
from cometmq.protocol.command import Command, Response
from cometmq.protocol.data_version import DataVersion
from cometmq.replication.slaves import Slaves
from cometmq.transport.connection import Connection, Handlers, Refusal

from ..bodies import json_response
from ..context import Context
from ..timers.timers import Timers


class ReplicationRequests:
    def __init__(self, context: Context, timers: Timers | None) -> None:
        self._context = context
        self._timers = timers
        self._version = DataVersion(0, context.clock.now_ms(), 0)

    def handlers(self) -> Handlers:
        return {
            RequestCode.GET_TIMER_CHECK_POINT: self.timer_checkpoint,
            RequestCode.GET_TIMER_METRICS: self.timer_metrics,
            RequestCode.GET_ALL_MESSAGE_REQUEST_MODE: self.request_modes,
            RequestCode.EXCHANGE_BROKER_HA_INFO: self.ha_info,
            RequestCode.GET_BROKER_HA_STATUS: self.ha_status,
        }

    def timer_checkpoint(self, _: Connection, __: Command) -> Response:
        told = self._timers.told() if self._timers is not None else None
        if told is None:
            raise Refusal(ResponseCode.SYSTEM_ERROR, "The checkpoint is null")
        return Response(body=told)

    def timer_metrics(self, _: Connection, __: Command) -> Response:
        """How many messages of each topic wait: not counted here by topic."""
        if self._timers is None:
            raise Refusal(ResponseCode.SYSTEM_ERROR, "The timer message store is null")
        return json_response({"dataVersion": self._version, "timingCount": {}})

    def request_modes(self, _: Connection, __: Command) -> Response:
        """Of pop consumption, which this broker has not."""
        return json_response({"messageRequestModeMap": {}})

    def ha_info(self, _: Connection, __: Command) -> Response:
        """Where a master's stream is. One that tells a slave where itself is finds no belief: a
        slave goes by its settings and its NameServers."""
        context = self._context
        if context.slaves is None:
            return Response()
        return Response(
            fields={
                "masterHaAddress": context.ha_address,
                "masterFlushOffset": str(context.store.flushed.value),
                "masterAddress": str(context.address),
            }
        )

    def ha_status(self, _: Connection, __: Command) -> Response:
        context = self._context
        status: dict[str, object] = {
            "master": context.follower is None,
            "masterCommitLogMaxOffset": 0,
            "inSyncSlaveNums": 0,
            "haConnectionInfo": [],
            "haClientRuntimeInfo": self._as_slave(),
        }
        if context.slaves is not None:
            status |= self._as_master(context.slaves)
        return json_response(status)

    def _as_master(self, slaves: Slaves) -> Mapping[str, object]:
        end = self._context.store.appended.value
        return {
            "masterCommitLogMaxOffset": end,
            "inSyncSlaveNums": slaves.in_sync - 1,
            "haConnectionInfo": [
                {
                    "addr": str(link.peer),
                    "slaveAckOffset": link.acknowledged,
                    "diff": end - link.acknowledged,
                    "inSync": slaves.is_in_sync(link),
                    "transferredByteInSecond": 0,
                    "transferFromWhere": link.sent,
                }
                for link in slaves
            ],
        }

    def _as_slave(self) -> Mapping[str, object]:
        follower, link = self._context.follower, None
        if follower is not None:
            link = follower.link
        return {
            "masterAddr": follower.ha_address if follower is not None else None,
            "transferredByteInSecond": 0,
            "maxOffset": self._context.store.appended.value if follower is not None else 0,
            "lastReadTimestamp": link.heard_ms if link is not None else 0,
            "lastWriteTimestamp": link.reported_ms if link is not None else 0,
            "masterFlushOffset": 0,
            "activated": link is not None,
        }
