"""A NameServer on a free port and connections that ask it."""

import contextlib
import dataclasses
from collections.abc import AsyncIterator
from typing import TypeVar

import msgspec

from cometmq.namesrv.config import NamesrvConfig
from cometmq.namesrv.server import NameServer
from cometmq.protocol.codes import RequestCode
from cometmq.protocol.command import Command, Request
from cometmq.protocol.registration import RegisterFields, Registration, header_fields
from cometmq.protocol.routes import ClusterInfo, TopicRoute
from cometmq.testing.clock import ManualClock
from cometmq.transport.connection import Connection
from cometmq.transport.dial import connect

from .brokers import broker, topics

TIMEOUT_S = 10.0
Body = TypeVar("Body")


@dataclasses.dataclass
class Running:
    server: NameServer
    clock: ManualClock
    connection: Connection

    async def ask(self, code: int, content: bytes = b"", /, **fields: str) -> Command:
        return await self.connection.request(Request(code, fields, content), TIMEOUT_S)

    async def told(self, code: int, kind: type[Body], /, **fields: str) -> Body:
        """The body of an answer that is a yes."""
        answer = await self.ask(code, **fields)
        assert (answer.code, answer.remark) == (0, None)
        return msgspec.json.decode(answer.body, type=kind)

    async def route(self, topic: str) -> TopicRoute:
        return await self.told(RequestCode.GET_ROUTEINFO_BY_TOPIC, TopicRoute, topic=topic)

    async def brokers(self) -> list[str]:
        info = await self.told(RequestCode.GET_BROKER_CLUSTER_INFO, ClusterInfo)
        return list(info.broker_addr_table)

    async def connect(self) -> Connection:
        return await connect(str(self.server.address))

    async def register(
        self,
        fields: RegisterFields | None = None,
        content: Registration | None = None,
        *,
        connection: Connection | None = None,
    ) -> Command:
        """Register a broker, over its own connection if one is given."""
        request = Request(
            RequestCode.REGISTER_BROKER,
            header_fields(fields or broker()),
            msgspec.json.encode(content or topics("orders", "bills")),
        )
        return await (connection or self.connection).request(request, TIMEOUT_S)


@contextlib.asynccontextmanager
async def running(config: NamesrvConfig | None = None) -> AsyncIterator[Running]:
    clock = ManualClock()
    server = NameServer(dataclasses.replace(config or NamesrvConfig(), port=0), clock)
    await server.start()
    try:
        yield Running(server, clock, await connect(str(server.address)))
    finally:
        await server.stop()
