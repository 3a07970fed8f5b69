"""Telling NameServers that this broker is there and which topics it has.

Each NameServer has its own connection and its own task, so one that is away keeps nobody waiting.
All hear everything every 30 seconds, and at once when topics change or a connection was lost.
"""

import asyncio
import logging

import msgspec

from cometmq.protocol.command import MalformedFields
from cometmq.protocol.fastjson import decode_body
from cometmq.protocol.registration import (
    BrokerFields,
    MasterFields,
    RegisterFields,
    register_request,
    unregister_request,
)
from cometmq.transport.connection import Connection
from cometmq.transport.dial import connect
from cometmq.transport.errors import TransportError
from cometmq.transport.tls import client_context

from .context import Context

log = logging.getLogger(__name__)
RETRY_S = 5.0
FAREWELL_S = 3.0
ANNOUNCE_S = 3.0
"""A NameServer that takes longer hears of it, but nobody waits for that."""
GATHER_S = 0.01
"""Changes within so short a time are told together."""


class _Answer(msgspec.Struct):
    table: dict[str, str] = {}


class Registration:
    def __init__(self, context: Context) -> None:
        self._context = context
        self._name_servers = [
            _NameServer(context, address) for address in context.config.name_server_addresses()
        ]
        self._tasks: list[asyncio.Task[None]] = []

    async def start(self) -> None:
        """Register with all; returns when each has answered or failed once."""
        self._tasks = [asyncio.create_task(server.keep()) for server in self._name_servers]
        for server in self._name_servers:
            await server.tried.wait()

    def changed(self) -> None:
        for server in self._name_servers:
            server.news.set()

    async def announce(self) -> None:
        """Register now; returns when each NameServer has heard, or could not be reached."""
        await asyncio.gather(*(server.announce() for server in self._name_servers))

    async def stop(self) -> None:
        await self._end_tasks()
        await asyncio.gather(*(server.leave() for server in self._name_servers))

    async def abandon(self) -> None:
        """End without a farewell."""
        await self._end_tasks()
        for server in self._name_servers:
            server.hang_up()

    async def _end_tasks(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


class _NameServer:
    def __init__(self, context: Context, address: str) -> None:
        self.tried = asyncio.Event()
        self.news = asyncio.Event()
        self._context = context
        self._address = address
        self._connection: Connection | None = None
        self._known = True
        self._waiting: list[asyncio.Future[None]] = []

    async def announce(self) -> None:
        heard: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(heard)
        self.news.set()
        await asyncio.wait([heard], timeout=ANNOUNCE_S)

    async def keep(self) -> None:
        """Register again and again."""
        while True:
            self.news.clear()
            waiting, self._waiting = self._waiting, []
            succeeded = await self._register()
            self.tried.set()
            for heard in waiting:
                if not heard.done():
                    heard.set_result(None)
            try:
                async with asyncio.timeout(self._pause_s(succeeded=succeeded)):
                    await self.news.wait()
                    await asyncio.sleep(GATHER_S)
            except TimeoutError:
                continue

    def _pause_s(self, *, succeeded: bool) -> float:
        """How long until the next time. A slave without its master asks often where it is."""
        interval_s = self._context.config.register_interval_ms / 1000
        follower = self._context.follower
        if succeeded and (follower is None or follower.link is not None):
            return interval_s
        return min(RETRY_S, interval_s)

    async def _register(self) -> bool:
        context = self._context
        try:
            connection = await self._connected()
            request = register_request(self._fields(), context.topics.told())
            answer = await connection.request(request, context.config.register_timeout_ms / 1000)
            if answer.code != 0:
                raise TransportError(answer.remark or f"answer {answer.code}")
            if context.follower is not None:
                master = answer.fields(MasterFields)
                context.follower.tell_master(master.ha_server_addr, master.master_addr)
            if answer.body:
                table = decode_body(answer.body, _Answer, "answer to a registration").table
                context.topics.set_order(table)
        except (TransportError, MalformedFields, ValueError) as error:
            if self._known:
                log.warning("not registered at NameServer %s: %s", self._address, error)
            self._known = False
            return False
        if not self._known:
            log.info("registered at NameServer %s again", self._address)
        self._known = True
        return True

    async def leave(self) -> None:
        """Say good-bye, so that clients go elsewhere at once."""
        if self._connection is None or not self._connection.is_open:
            return
        fields = self._fields()
        who = BrokerFields(
            fields.broker_name, fields.broker_addr, fields.cluster_name, fields.broker_id
        )
        try:
            await self._connection.request(unregister_request(who), FAREWELL_S)
        except TransportError as error:
            log.warning("NameServer %s did not hear our farewell: %s", self._address, error)
        self._connection.close()

    def hang_up(self) -> None:
        if self._connection is not None:
            self._connection.abort()

    async def _connected(self) -> Connection:
        if self._connection is None or not self._connection.is_open:
            self._connection = await connect(
                self._address,
                tls=client_context() if self._context.config.tls_to_name_servers else None,
                on_close=self._closed,
            )
        return self._connection

    def _closed(self, _: Connection) -> None:
        """It may be back in a moment, and know nothing of us."""
        if self._known:
            self.news.set()

    def _fields(self) -> RegisterFields:
        config, address = self._context.config, self._context.address
        return RegisterFields(
            broker_name=config.name,
            broker_addr=str(address),
            cluster_name=config.cluster,
            broker_id=self._context.broker_id,
            ha_server_addr=self._context.ha_address or f"{address.ip}:{address.port + 1}",
            enable_acting_master=config.acting_master,
        )
