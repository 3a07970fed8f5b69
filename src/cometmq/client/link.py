"""A client's link to its cluster: NameServers, routes, a connection to each broker, heartbeats.

Every producer, consumer and admin has a link of its own. A new connection to a broker says first
who we are, so that whoever reconnects is subscribed again before it asks for anything. Requests
that brokers send by themselves go to the handlers that the link was made with.
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable, Collection, Coroutine, Iterator, Mapping

import msgspec

from cometmq.protocol.codes import RequestCode, ResponseCode
from cometmq.protocol.command import Command, Request
from cometmq.protocol.heartbeat import Heartbeat
from cometmq.transport.connection import Connection, Handlers
from cometmq.transport.errors import ConnectionClosed, RequestTimeout, TransportError

from .backoff import Backoff
from .cluster import Cluster, new_client_id, text_fields
from .connections import Connections
from .errors import (
    AnswerTimedOut,
    ClientError,
    ConnectionLost,
    NoPermission,
    NotStarted,
    Unreachable,
    error_of,
)
from .nameservers import NameServers
from .routes import Routes

log = logging.getLogger(__name__)
SUCCESS = frozenset({int(ResponseCode.SUCCESS)})


class Link:
    def __init__(
        self,
        cluster: Cluster,
        *,
        client_id: str = "",
        handlers: Handlers | None = None,
        heartbeat: Callable[[str], Heartbeat] | None = None,
    ) -> None:
        """`heartbeat` makes what brokers are told every half minute; who sends none, needs none."""
        self.cluster = cluster
        self.client_id = client_id or new_client_id()
        self._heartbeat = heartbeat
        self._connections = Connections(
            handlers or {},
            tls=cluster.tls,
            connect_timeout_s=cluster.connect_timeout_s,
            greet=self._greet,
            on_lost=self._lost,
        )
        self._nameservers = NameServers(cluster.addresses, self._ask_or_hang_up)
        self.routes = Routes(self._nameservers.ask)
        self._tasks: set[asyncio.Task[None]] = set()
        self._doubted: set[str] = set()
        self._running = False

    # -- life ------------------------------------------------------------------------------------

    def start(self) -> None:
        self._running = True
        self.spawn(self._every(self.cluster.route_refresh_s, self.routes.refresh_all))
        self.spawn(self._every(self.cluster.heartbeat_s, self.beat))

    async def stop(self) -> None:
        self._running = False
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._connections.close()

    @property
    def is_running(self) -> bool:
        return self._running

    def require_running(self) -> None:
        if not self._running:
            raise NotStarted("start the client first: `async with` does, or `await start()`")

    def spawn(self, work: Coroutine[None, None, None]) -> asyncio.Task[None]:
        """Run something beside, until it ends or the link stops."""
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and task.exception() is not None:
            log.error("a part of the client broke", exc_info=task.exception())

    async def _every(self, seconds: float, work: Callable[[], Coroutine[None, None, None]]) -> None:
        while True:
            await asyncio.sleep(seconds)
            try:
                await work()
            except Exception:
                log.exception("a regular duty of the client failed; it goes on")

    # -- requests --------------------------------------------------------------------------------

    async def ask(
        self,
        address: str,
        code: int,
        fields: Mapping[str, object] | None = None,
        body: bytes = b"",
        *,
        timeout_s: float | None = None,
        accept: Collection[int] = SUCCESS,
    ) -> Command:
        """The answer of a broker; any code not in `accept` is raised as its error."""
        self.require_running()
        request = Request(code, text_fields(fields or {}), body)
        try:
            return await self._ask_address(address, request, timeout_s, accept)
        except AnswerTimedOut:
            self.doubt(address)
            raise

    async def ask_namesrv(
        self, code: int, fields: Mapping[str, object] | None = None, body: bytes = b""
    ) -> Command:
        """The answer of the first NameServer that has one."""
        self.require_running()
        return await self._nameservers.ask(Request(code, text_fields(fields or {}), body))

    async def ask_all_namesrvs(
        self, code: int, fields: Mapping[str, object] | None = None, body: bytes = b""
    ) -> list[Command]:
        """The answers of all NameServers: they do not tell each other."""
        self.require_running()
        request = Request(code, text_fields(fields or {}), body)
        return [await self._ask_address(address, request) for address in self.cluster.addresses]

    async def tell(self, address: str, code: int, fields: Mapping[str, object]) -> None:
        """A one-way request: no answer, and no word of whether it arrived."""
        self.require_running()
        connection = await self._connections.get(address)
        connection.tell(self.signed(Request(code, text_fields(fields))))

    async def connection(self, address: str) -> Connection:
        return await self._connections.get(address)

    def open_connection(self, address: str) -> Connection | None:
        """The connection if there is one: the way that waits for nothing."""
        return self._connections.current(address)

    def signed(self, request: Request) -> Request:
        credentials = self.cluster.credentials
        return request if credentials is None else credentials.sign(request)

    async def _ask_address(
        self,
        address: str,
        request: Request,
        timeout_s: float | None = None,
        accept: Collection[int] = SUCCESS,
    ) -> Command:
        connection = await self._connections.get(address)
        timeout_s = self.cluster.request_timeout_s if timeout_s is None else timeout_s
        with transport_errors():
            answer = await connection.request(self.signed(request), timeout_s)
        if answer.code not in accept:
            raise error_of(answer.code, answer.remark, address)
        return answer

    async def _ask_or_hang_up(self, address: str, request: Request) -> Command:
        """For what every server answers at once: silence means that the connection is dead, and
        TCP alone might need a quarter of an hour to notice."""
        try:
            return await self._ask_address(address, request)
        except AnswerTimedOut:
            self._connections.drop(address)
            raise

    # -- heartbeats ------------------------------------------------------------------------------

    async def beat(self) -> None:
        """Tell every broker of the topics in use that we are here, and as what."""
        if self._heartbeat is not None:
            await asyncio.gather(*(self._beat_at(address) for address in self.routes.addresses))

    async def introduce(self) -> None:
        """The first heartbeats. A broker that is away hears of us later; one that does not want us
        is an error now, instead of a warning every half minute."""
        addresses = list(self.routes.addresses)
        greeted = await asyncio.gather(
            *map(self._connections.get, addresses), return_exceptions=True
        )
        for address, outcome in zip(addresses, greeted, strict=True):
            if isinstance(outcome, BaseException):
                if isinstance(outcome, NoPermission) or not isinstance(outcome, ClientError):
                    raise outcome
                log.warning("no heartbeat to broker %s: %s", address, outcome)

    async def _beat_at(self, address: str) -> None:
        try:
            if self._connections.current(address) is None:
                await self._connections.get(address)  # Its greeting is the heartbeat.
            else:
                await self._ask_or_hang_up(address, self._heartbeat_request())
        except ClientError as error:
            log.warning("no heartbeat to broker %s: %s", address, error)

    def doubt(self, address: str) -> None:
        """A broker did not answer: find out beside whether its connection is dead. Who sends no
        heartbeats has nothing to find it out with, and takes it for dead: little hangs on it."""
        if self._heartbeat is None:
            self._connections.drop(address)
        elif self._running and address in self.routes.addresses and address not in self._doubted:
            self._doubted.add(address)
            probe = self.spawn(self._beat_at(address))
            probe.add_done_callback(lambda _: self._doubted.discard(address))

    async def _greet(self, address: str, connection: Connection) -> None:
        if self._heartbeat is None or address in self.cluster.addresses:
            return
        with transport_errors():
            answer = await connection.request(
                self.signed(self._heartbeat_request()), self.cluster.request_timeout_s
            )
        if answer.code not in SUCCESS:
            raise error_of(answer.code, answer.remark, address)

    def _heartbeat_request(self) -> Request:
        assert self._heartbeat is not None
        body = msgspec.json.encode(self._heartbeat(self.client_id))
        return Request(RequestCode.HEART_BEAT, {}, body)

    async def unregister(
        self, *, producer_group: str | None = None, consumer_group: str | None = None
    ) -> None:
        """Tell the brokers that we leave, so that they need not wait to find out."""
        fields = {
            "clientID": self.client_id,
            "producerGroup": producer_group,
            "consumerGroup": consumer_group,
        }
        code = RequestCode.UNREGISTER_CLIENT
        connected = [one for one in self.routes.addresses if self._connections.current(one)]
        told = await asyncio.gather(
            *(self.ask(address, code, fields) for address in connected), return_exceptions=True
        )
        for address, answer in zip(connected, told, strict=True):
            if isinstance(answer, BaseException):
                log.info("broker %s could not be told that we leave: %s", address, answer)

    # -- lost connections ------------------------------------------------------------------------

    def _lost(self, address: str) -> None:
        """Brokers reach us over our connections only: get one that is still in use back."""
        if self._running and self._heartbeat is not None and address in self.routes.addresses:
            log.info("the connection to broker %s was lost", address)
            self.spawn(self._restore(address))

    async def _restore(self, address: str) -> None:
        backoff = Backoff()
        while self._running and address in self.routes.addresses:
            await asyncio.sleep(backoff.next_s())
            try:
                await self._connections.get(address)
            except ClientError as error:
                log.debug("broker %s is still away: %s", address, error)
            else:
                log.info("connected to broker %s again", address)
                return


@contextlib.contextmanager
def transport_errors() -> Iterator[None]:
    """Errors of a connection as this package names them."""
    try:
        yield
    except TransportError as error:
        raise client_error(error) from error


def client_error(error: TransportError) -> ClientError:
    if isinstance(error, RequestTimeout):
        return AnswerTimedOut(str(error))
    if isinstance(error, ConnectionClosed):
        return ConnectionLost(str(error))
    return Unreachable(str(error))
