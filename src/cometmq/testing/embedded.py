"""A whole cluster inside a test: a real NameServer and real brokers, in this process.

On entry everything serves and is registered; on exit nothing is left: no thread, task, socket or
file, but for a directory that was given. Ports and directories stay the same while parts are
stopped and started. What the brokers keep is what they keep anywhere, only in smaller files.
"""

import asyncio
import contextlib
import shutil
import string
import tempfile
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Literal, Self

from cometmq.broker.broker import Broker
from cometmq.broker.config import FAST_PORT_DISTANCE, INT_MAX, load
from cometmq.namesrv.config import NamesrvConfig
from cometmq.namesrv.server import NameServer
from cometmq.protocol.admin_headers import CreateTopicFields
from cometmq.protocol.codes import RequestCode
from cometmq.protocol.command import Request
from cometmq.protocol.registration import header_fields
from cometmq.protocol.topic_config import PERM_READ, PERM_WRITE
from cometmq.store.config import FlushMode
from cometmq.transport.background import BackgroundLoop
from cometmq.transport.dial import connect

from .clock import MovableClock
from .fault_proxy import FaultProxy
from .own_loop import CALL_TIMEOUT_S
from .ports import LOOPBACK, ReservedPort
from .route_proxy import RouteProxy

if TYPE_CHECKING:
    from .blocking import BlockingEmbeddedBroker

BROKERS_MAX: Final = 16
REQUEST_TIMEOUT_S: Final = 10.0
MEMORY: Final = Path("/dev/shm")  # noqa: S108 - a directory of its own is made in it
MIB: Final = 1024**2

_SMALL: Final[Mapping[str, Any]] = {
    "mappedFileSizeCommitLog": 8 * MIB,  # Room for the largest message.
    "mappedFileSizeConsumeQueue": 20 * 5000,
    "mappedFileSizeTimerLog": MIB,
    "maxHashSlotNum": 5000,
    "maxIndexNum": 20_000,
    # A full disk is still noticed when there is no space; a rather full one is no matter of tests.
    "diskMaxUsedSpaceRatio": 100,
    "diskSpaceCleanForciblyRatio": 100,
    "diskSpaceWarningLevelRatio": 100,
    # Who moves the clock by hours does not mean that clients have been silent for so long.
    "channelExpiredTimeout": INT_MAX,
}
_OWN_KEYS: Final[Mapping[str, str]] = {
    "storePathRootDir": "give `directory=`",
    "flushDiskType": "give `flush=`",
    "listenPort": "ports are free ones",
    "bindAddress": f"all listen at {LOOPBACK}",
    "namesrvAddr": "brokers have their own NameServer",
    "brokerName": "brokers are called broker-a, broker-b, …",
}


class EmbeddedBroker:
    """Real servers inside a test, for as long as it is entered.

    async with EmbeddedBroker() as broker:
        await broker.create_topic("orders")
        ...  # clients connect to the NameServer at broker.namesrv

    With a plain `with` the servers run in a thread of their own and the methods block. Several
    `brokers` are counted from 0. `settings` are RocketMQ's keys, for all brokers. `in_memory` keeps
    files in the machine's memory where it has a directory for that (/dev/shm), elsewhere in an
    ordinary temporary one. `through_proxy` leads clients through proxies that can be made to fail.
    Delays, transactions, locks and retention go by `clock`; the NameServer does not, and a moved
    clock takes no client for gone unless `channelExpiredTimeout` is set.
    """

    def __init__(
        self,
        *,
        directory: Path | str | None = None,
        in_memory: bool = False,
        clock: MovableClock | None = None,
        brokers: int = 1,
        settings: Mapping[str, Any] | None = None,
        flush: Literal["async", "sync"] = "async",
        through_proxy: bool = False,
    ) -> None:
        _check(directory, in_memory, brokers, settings or {}, flush)
        self.clock = clock or MovableClock()
        self._given_directory = Path(directory) if directory is not None else None
        self._in_memory = in_memory
        self._settings = {
            **_SMALL,
            **(settings or {}),
            "flushDiskType": (FlushMode.SYNC if flush == "sync" else FlushMode.ASYNC).value,
        }
        self._count = brokers
        self._through_proxy = through_proxy
        self._directory: Path | None = None
        self._places: list[_Place] = []
        self._namesrv: NameServer | None = None
        self._namesrv_port = 0
        self._routes: RouteProxy | None = None
        self._exit = contextlib.AsyncExitStack()
        self._background: BackgroundLoop | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    # -- life ------------------------------------------------------------------------------------

    async def __aenter__(self) -> Self:
        if self._loop is not None:
            raise RuntimeError("this embedded broker is running already")
        async with contextlib.AsyncExitStack() as stack:
            self._loop = asyncio.get_running_loop()
            stack.callback(self._forget_loop)
            self._directory = self._make_directory(stack)
            self._reserve_ports(stack)
            await self.start_namesrv()
            stack.push_async_callback(self._end_namesrv)
            for number, place in enumerate(self._places):
                await self.start_broker(number)
                stack.push_async_callback(place.stop)
            if self._through_proxy:
                address = f"{LOOPBACK}:{self._namesrv_port}"
                self._routes = await stack.enter_async_context(RouteProxy(address))
            self.clock.watch(self._clock_moved)
            stack.callback(self.clock.unwatch, self._clock_moved)
            self._exit = stack.pop_all()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self._exit.aclose()

    def __enter__(self) -> "BlockingEmbeddedBroker":
        from .blocking import BlockingEmbeddedBroker

        background = BackgroundLoop("cometmq-testing", call_timeout_s=CALL_TIMEOUT_S)
        background.start()
        try:
            background.call(self.__aenter__())
        except BaseException:
            background.stop()
            raise
        self._background = background
        return BlockingEmbeddedBroker(self, background)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        assert self._background is not None
        try:
            self._background.call(self.__aexit__(kind, error, trace))
        finally:
            self._background.stop()

    def _make_directory(self, stack: contextlib.AsyncExitStack) -> Path:
        if self._given_directory is not None:
            return self._given_directory
        parent = MEMORY if self._in_memory and MEMORY.is_dir() else None
        made = Path(tempfile.mkdtemp(prefix="cometmq-", dir=parent))
        stack.callback(shutil.rmtree, made)
        return made

    def _reserve_ports(self, stack: contextlib.AsyncExitStack) -> None:
        def reserved(below: int = 0) -> int:
            port = ReservedPort(below)
            stack.callback(port.release)
            return port.number

        self._namesrv_port = reserved()
        # Clients may want a broker's second port; slaves have one of their own.
        self._places = [
            self._place(number, reserved(FAST_PORT_DISTANCE), reserved())
            for number in range(self._count)
        ]

    def _place(self, number: int, port: int, for_slaves: int) -> "_Place":
        name = f"broker-{string.ascii_lowercase[number]}"
        settings = {
            "haListenPort": for_slaves,
            **self._settings,
            "brokerName": name,
            "storePathRootDir": self.directory / name,
            "listenPort": port,
            "namesrvAddr": f"{LOOPBACK}:{self._namesrv_port}",
        }
        return _Place(settings, f"{LOOPBACK}:{port}", self.clock)

    def _forget_loop(self) -> None:
        self._loop = None

    # -- what there is ---------------------------------------------------------------------------

    @property
    def namesrv(self) -> str:
        """The address that clients are given."""
        self._require_running()
        return self._routes.address if self._routes else f"{LOOPBACK}:{self._namesrv_port}"

    @property
    def addresses(self) -> list[str]:
        """Where the brokers listen themselves."""
        self._require_running()
        return [place.address for place in self._places]

    @property
    def address(self) -> str:
        """Where the first broker listens itself."""
        return self.addresses[0]

    @property
    def directory(self) -> Path:
        """Has a directory for each broker: `broker-a`, `broker-b`, …"""
        self._require_running()
        assert self._directory is not None
        return self._directory

    def proxy(self, number: int = 0) -> FaultProxy:
        """The proxy between clients and a broker."""
        return self._require_routes().to(self._at(number).address)

    @property
    def namesrv_proxy(self) -> FaultProxy:
        """The proxy between clients and the NameServer."""
        return self._require_routes().namesrv

    def _require_running(self) -> None:
        if self._loop is None:
            raise RuntimeError("the embedded broker is not running: use `async with` or `with`")

    def _require_routes(self) -> RouteProxy:
        self._require_running()
        if self._routes is None:
            raise RuntimeError("there are no proxies: give `through_proxy=True`")
        return self._routes

    def _at(self, number: int) -> "_Place":
        self._require_running()
        if not 0 <= number < self._count:
            raise IndexError(f"no broker {number}: there are {self._count}, counted from 0")
        return self._places[number]

    # -- what a test does ------------------------------------------------------------------------

    async def create_topic(
        self,
        name: str,
        queues: int = 4,
        *,
        permission: int = PERM_READ | PERM_WRITE,
        order: bool = False,
        attributes: Mapping[str, str] | None = None,
    ) -> None:
        """Create or change a topic at all brokers that run; then routes have it."""
        fields = CreateTopicFields(
            name, queues, queues, permission, order=order,
            attributes=",".join(f"+{key}={value}" for key, value in (attributes or {}).items()),
        )  # fmt: skip
        running = [place.address for place in self._places if place.broker is not None]
        if not running:
            raise RuntimeError(f"topic {name}: no broker is running")
        for address in running:
            await _create_topic(address, fields)

    async def advance(self, seconds: float) -> None:
        """Move the clock. What is due by then begins to happen at once."""
        self.clock.advance(round(seconds * 1000))
        await asyncio.sleep(0)  # The brokers look.

    async def restart(self, number: int = 0, *, abrupt: bool = False) -> None:
        """Stop and start a broker: same port, same directory."""
        await self.stop_broker(number, abrupt=abrupt)
        await self.start_broker(number)

    async def stop_broker(self, number: int = 0, *, abrupt: bool = False) -> None:
        """In order; or `abrupt`, as if it was killed: connections break, nothing more is saved,
        and the next start recovers. What was written is there, as after a kill; a power cut is
        what `PowerCutDisk` is for."""
        place = self._at(number)
        if place.broker is None:
            raise RuntimeError(f"broker {number} is not running")
        await place.stop(abrupt=abrupt)

    async def start_broker(self, number: int = 0) -> None:
        """Returns when it serves and, if there is a NameServer, is registered."""
        place = self._at(number)
        if place.broker is not None:
            raise RuntimeError(f"broker {number} is running already")
        await place.start()

    async def stop_namesrv(self) -> None:
        self._require_running()
        if self._namesrv is None:
            raise RuntimeError("the NameServer is not running")
        await self._end_namesrv()

    async def start_namesrv(self) -> None:
        """Returns when all brokers that run have registered."""
        self._require_running()
        if self._namesrv is not None:
            raise RuntimeError("the NameServer is running already")
        kept = self.directory / "namesrv" / "kvConfig.json"
        namesrv = NameServer(NamesrvConfig(port=self._namesrv_port, kv_config_path=kept))
        await namesrv.start()
        self._namesrv = namesrv
        running = [place.broker for place in self._places if place.broker is not None]
        await asyncio.gather(*(broker.parts.context.announce() for broker in running))

    async def _end_namesrv(self) -> None:
        namesrv, self._namesrv = self._namesrv, None
        if namesrv is not None:
            await namesrv.stop()

    # -- time ------------------------------------------------------------------------------------

    def _clock_moved(self) -> None:
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._poke)

    def _poke(self) -> None:
        for place in self._places:
            if place.broker is not None:
                place.broker.parts.poke()


class _Place:
    """One broker's place in the cluster: its port and directory stay, the broker comes and goes."""

    def __init__(self, settings: Mapping[str, Any], address: str, clock: MovableClock) -> None:
        self.address = address
        self.broker: Broker | None = None
        self._config, self._store_config, _ = load(settings)
        self._clock = clock

    async def start(self) -> None:
        broker = Broker(self._config, self._store_config, clock=self._clock)
        await broker.start()
        self.broker = broker

    async def stop(self, *, abrupt: bool = False) -> None:
        broker, self.broker = self.broker, None
        if broker is not None:
            await (broker.abandon() if abrupt else broker.stop())


async def _create_topic(address: str, fields: CreateTopicFields) -> None:
    connection = await connect(address)
    try:
        request = Request(RequestCode.UPDATE_AND_CREATE_TOPIC, header_fields(fields))
        answer = await connection.request(request, REQUEST_TIMEOUT_S)
    finally:
        connection.close()
    if answer.code != 0:
        raise ValueError(f"topic {fields.topic}: {answer.remark}")


def _check(
    directory: Path | str | None,
    in_memory: bool,
    brokers: int,
    settings: Mapping[str, Any],
    flush: str,
) -> None:
    if directory is not None and in_memory:
        raise ValueError("in_memory and a directory exclude each other: give one of them")
    if not 1 <= brokers <= BROKERS_MAX:
        raise ValueError(f"brokers={brokers}: 1 to {BROKERS_MAX} are possible")
    if flush not in ("async", "sync"):
        raise ValueError(f"flush={flush!r}: 'async' or 'sync' is expected")
    for key, advice in _OWN_KEYS.items():
        if key in settings:
            raise ValueError(f"settings: {key} is not yours to set here: {advice}")
