"""A NameServer's proxy whose routes lead through fault proxies.

Clients that ask it for routes reach every broker through a proxy that a test can make fail.

Works for any cluster, since no broker has to advertise another address. Requests and answers pass
unchanged but for the brokers' addresses in routes and cluster lists. Addresses that clients learn
in other ways, such as that within a message id, lead past the proxies.
"""

import asyncio
from collections.abc import Iterator, Mapping
from types import TracebackType
from typing import Any, Final, Self

import msgspec

from cometmq.protocol.codes import RequestCode
from cometmq.protocol.command import Command, Request, Response
from cometmq.protocol.fastjson import parse_json
from cometmq.transport.connection import Connection, Handler
from cometmq.transport.dial import connect
from cometmq.transport.errors import TransportError
from cometmq.transport.server import Server

from .fault_proxy import FaultProxy
from .own_loop import in_own_loop
from .ports import LOOPBACK

BROKERS_MAX: Final = 64
ANSWER_TIMEOUT_S: Final = 30.0
_UPSTREAM: Final = "upstream"


class _AnyCode(Mapping[int, Handler]):
    """One handler for all requests."""

    def __init__(self, handler: Handler) -> None:
        self._handler = handler

    def __getitem__(self, code: int) -> Handler:
        return self._handler

    def __iter__(self) -> Iterator[int]:
        return iter(())

    def __len__(self) -> int:
        return 0


class RouteProxy:
    """Stands in front of a NameServer, and so in front of its brokers.

    async with RouteProxy("127.0.0.1:9876") as routes:
        ...  # clients use routes.address as their NameServer
        routes.to("127.0.0.1:10911").cut()
    """

    def __init__(self, namesrv: str) -> None:
        self._target = namesrv
        self._server = Server(_AnyCode(self._forward), on_close=self._closed)
        self._front: FaultProxy | None = None
        self._brokers: dict[str, FaultProxy] = {}

    async def __aenter__(self) -> Self:
        address = await self._server.listen(LOOPBACK, 0)
        self._front = FaultProxy(str(address))
        self._front.start()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await asyncio.gather(*(proxy.stop() for proxy in (self.namesrv, *self._brokers.values())))
        await self._server.stop()

    @property
    def namesrv(self) -> FaultProxy:
        """The proxy between clients and the NameServer."""
        if self._front is None:
            raise RuntimeError("the route proxy is not running: use `async with`")
        return self._front

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        return self.namesrv.loop

    @property
    def address(self) -> str:
        """What clients take for their NameServer."""
        return self.namesrv.address

    @in_own_loop
    def to(self, broker: str) -> FaultProxy:
        """The proxy between clients and the broker at an address."""
        proxy = self._brokers.get(broker)
        if proxy is None:
            if len(self._brokers) >= BROKERS_MAX:
                raise RuntimeError(f"routes name more than {BROKERS_MAX} brokers")
            proxy = self._brokers[broker] = FaultProxy(broker)
            proxy.start()
        return proxy

    # -- requests --------------------------------------------------------------------------------

    async def _forward(self, connection: Connection, command: Command) -> Response | None:
        request = Request(command.code, command.text_fields(), command.body)
        try:
            upstream = await self._upstream(connection)
            if command.is_oneway:
                upstream.tell(request)
                return None
            answer = await upstream.request(request, ANSWER_TIMEOUT_S)
        except TransportError:  # As if the client had been connected with the NameServer itself.
            connection.abort()
            return None
        body = answer.body
        if answer.code == 0 and body:
            body = self._led_through(command.code, body)
        return Response(answer.code, answer.remark, answer.text_fields(), body)

    async def _upstream(self, connection: Connection) -> Connection:
        """The NameServer knows brokers by their connections: each client gets its own."""
        if _UPSTREAM not in connection.state:
            connection.state[_UPSTREAM] = asyncio.ensure_future(
                connect(self._target, on_close=lambda _: connection.abort())
            )
        upstream: Connection = await connection.state[_UPSTREAM]
        return upstream

    def _closed(self, connection: Connection) -> None:
        upstream = connection.state.get(_UPSTREAM)
        if upstream is not None:
            upstream.add_done_callback(_hang_up)

    # -- answers ---------------------------------------------------------------------------------

    def _led_through(self, code: int, body: bytes) -> bytes:
        if code == RequestCode.GET_ROUTEINFO_BY_TOPIC:
            route = parse_json(body)
            self._rename(route.get("brokerDatas") or ())
        elif code == RequestCode.GET_BROKER_CLUSTER_INFO:
            route = parse_json(body)
            self._rename((route.get("brokerAddrTable") or {}).values())
        else:
            return body
        return msgspec.json.encode(route)

    def _rename(self, brokers: Any) -> None:
        for broker in brokers:
            addresses = broker.get("brokerAddrs") or {}
            for number, address in addresses.items():
                addresses[number] = self.to(address).address


def _hang_up(upstream: "asyncio.Future[Connection]") -> None:
    if not upstream.cancelled() and upstream.exception() is None:
        upstream.result().close()
