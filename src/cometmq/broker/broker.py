"""A broker put together: the store, the tables, the handlers, and what runs by the clock."""

import asyncio
import contextlib
import logging
from collections.abc import Callable

from cometmq.clock import Clock, SystemClock
from cometmq.protocol.host import Host
from cometmq.protocol.scan import split_queue_key
from cometmq.store.config import StoreConfig
from cometmq.store.config_file import ConfigFile
from cometmq.store.disk import Disk
from cometmq.store.errors import StoreFailed
from cometmq.store.message_store import MessageStore
from cometmq.store.turns import LoopTurns
from cometmq.transport.connection import Connection, Handler
from cometmq.transport.limits import Limits
from cometmq.transport.server import Server
from cometmq.transport.tls import TlsMode, listening_context

from .admin import admin_handlers
from .clients import Clients
from .config import FAST_PORT_DISTANCE, BrokerConfig
from .context import Context
from .delays import Delays
from .groups import Groups
from .inbox import Inbox
from .locks import QueueLocks
from .offsets import ConsumerOffsets
from .positions import Positions
from .pulls import Pulls
from .queries import Queries
from .registration import Registration
from .replies import Replies
from .retries import Retries
from .sends import Sends
from .sessions import Sessions
from .stats import SAMPLE_INTERVAL_MS, Stats
from .timers.recall import Recalls
from .timers.timers import Timers
from .topics import Topics
from .transactions.transactions import Transactions
from .waiting_pulls import WaitingPulls

log = logging.getLogger(__name__)
TABLE_SAVE_INTERVAL_S = 1.0
CLIENT_SCAN_INTERVAL_S = 10.0
_WILDCARDS = ("", "0.0.0.0", "::")  # noqa: S104 - compared with, not bound to


class Broker:
    def __init__(
        self,
        config: BrokerConfig,
        store_config: StoreConfig,
        *,
        clock: Clock | None = None,
        disk: Disk | None = None,
        on_failure: Callable[[StoreFailed], None] | None = None,
    ) -> None:
        self._config = config
        self._store_config = store_config
        self._clock = clock or SystemClock()
        self._disk = disk or Disk()
        self._on_failure = on_failure
        self._context: Context | None = None
        self._inbox: Inbox | None = None
        self._delays: Delays | None = None
        self._timed: Timers | None = None
        self._transactions: Transactions | None = None
        self._server: Server | None = None
        self._registration: Registration | None = None
        self._timers: dict[Callable[[], None], asyncio.TimerHandle] = {}
        self._store: MessageStore | None = None

    @property
    def address(self) -> Host:
        """Where clients reach it."""
        assert self._context is not None, "the broker has not started"
        return self._context.address

    # -- start -----------------------------------------------------------------------------------

    async def start(self) -> None:
        """Recover the store, serve, and register. Raises StoreError or OSError if it cannot."""
        config = self._config
        tls = listening_context(
            config.tls_mode, config.tls_certificate, config.tls_key, config.tls_key_password
        )
        # Clients learn the address from the first record on, so the port must be known first.
        handlers: dict[int, Handler] = {}
        self._server = Server(
            handlers,
            limits=Limits(idle_s=config.idle_s),
            tls=tls,
            tls_required=config.tls_mode is TlsMode.ENFORCING,
            on_close=self._closed,
        )
        bound = await self._server.bind(config.bind_address, config.port)
        address = Host(self._advertised_ip(bound.ip), bound.port)
        try:
            self._store = self._open_store(address)
            self._context = self._build_context(self._store, address)
            handlers.update(self._build_handlers(self._context))
            self._registration = Registration(self._context)
            self._context.topics.on_change = self._topics_changed
            self._context.announce = self._registration.announce
            await self._bind_second_port(address.port)
            await self._server.serve()
        except BaseException:
            await self.stop()
            raise
        self._start_clockwork()
        await self._registration.start()
        log.info("broker %s serves at %s", config.name, address)

    def _advertised_ip(self, bound: str) -> str:
        if self._config.advertised_ip:
            return self._config.advertised_ip
        return "127.0.0.1" if bound in _WILDCARDS else bound

    async def _bind_second_port(self, port: int) -> None:
        """RocketMQ's second port, for clients that use it; only beside a port that was chosen."""
        if self._server is None or self._config.port <= FAST_PORT_DISTANCE:
            return
        try:
            await self._server.bind(self._config.bind_address, port - FAST_PORT_DISTANCE)
        except OSError as error:
            log.warning("no second port (vipChannelEnabled clients cannot connect): %s", error)

    def _open_store(self, address: Host) -> MessageStore:
        store = MessageStore(
            self._store_config,
            host=address,
            disk=self._disk,
            clock=self._clock,
            on_failure=self._on_failure,
        )
        report = store.open()
        log.info(
            "store %s: %d to %d, %s", self._store_config.root, report.log_start, report.log_end,
            "closed in order" if report.clean else "recovered after a crash",
        )  # fmt: skip
        return store

    def _build_context(self, store: MessageStore, address: Host) -> Context:
        config, clock = self._config, self._clock
        levels = len(store.config.delays_ms())
        groups = Groups(config, self._file("subscriptionGroup"), clock)

        def notifies(name: str) -> bool:
            group = groups.get(name)
            return group is None or group.notify_consumer_ids_changed_enable

        topics = Topics(config, levels, self._file("topics"), clock)
        topics.adopt(split_queue_key(key) for key, _ in store.queues)
        return Context(
            config=config,
            store=store,
            turns=LoopTurns(store, self._arrived),
            clock=clock,
            topics=topics,
            groups=groups,
            offsets=ConsumerOffsets(self._file("consumerOffset"), clock),
            clients=Clients(notifies),
            locks=QueueLocks(),
            waiting_pulls=WaitingPulls(config.pulls_held_max),
            stats=Stats(clock.now_ms()),
            address=address,
            started_ms=clock.now_ms(),
        )

    def _build_handlers(self, context: Context) -> dict[int, Handler]:
        self._inbox = inbox = Inbox(context)
        retries = Retries(context, inbox)
        transactions = Transactions(context, inbox, self._file("transactionChecks"))
        self._transactions = transactions
        self._delays = Delays(context.store, inbox, context.clock, self._file("delayOffset"))
        if self._config.timers:
            self._timed = Timers(context, inbox, self._disk, self._on_failure)
        sends = Sends(context, inbox, retries, transactions)
        parts = (
            sends, Replies(context, sends), retries, transactions, Pulls(context),
            Sessions(context), Positions(context), Queries(context),
            Recalls(context, inbox, self._timed),
        )  # fmt: skip
        served = {code: handler for part in parts for code, handler in part.handlers().items()}
        return {**served, **admin_handlers(context, inbox, self._delays)}

    def _file(self, name: str) -> ConfigFile:
        return ConfigFile(self._store_config.root / "config" / f"{name}.json", self._disk)

    # -- events ----------------------------------------------------------------------------------

    def _arrived(self, queues: list[bytes]) -> None:
        if self._context is not None and self._delays is not None:
            self._context.waiting_pulls.arrived(queues)
            self._delays.arrived(queues)
            if self._timed is not None:
                self._timed.arrived(queues)

    def _topics_changed(self) -> None:
        """Tell NameServers, and save before the turn's answers leave: nobody may be told that
        a message is stored in a topic that a restart does not know."""
        assert self._context is not None
        assert self._registration is not None
        self._registration.changed()
        asyncio.get_running_loop().call_soon(self._context.topics.save)

    def _closed(self, connection: Connection) -> None:
        if self._context is not None:
            self._context.clients.forget(connection)

    # -- by the clock ----------------------------------------------------------------------------

    def _start_clockwork(self) -> None:
        assert self._delays is not None
        assert self._transactions is not None
        self._delays.start()
        if self._timed is not None:
            self._timed.start()
            self._every(self._config.timer_save_interval_ms / 1000, self._timed.save_soon)
        self._transactions.start()
        self._every(TABLE_SAVE_INTERVAL_S, self._save_tables)
        self._every(self._config.offset_save_interval_ms / 1000, self._save_offsets)
        self._every(self._config.delay_save_interval_ms / 1000, self._delays.save)
        self._every(CLIENT_SCAN_INTERVAL_S, self._scan_clients)
        self._every(SAMPLE_INTERVAL_MS / 1000, self._sample)

    def _every(self, interval_s: float, work: Callable[[], None]) -> None:
        loop = asyncio.get_running_loop()

        def tick() -> None:
            self._timers[work] = loop.call_later(interval_s, tick)
            try:
                work()
            except OSError:
                log.exception("%s failed and is tried again", work.__name__)

        self._timers[work] = loop.call_later(interval_s, tick)

    def _save_tables(self) -> None:
        assert self._context is not None
        self._context.topics.save()
        self._context.groups.save()

    def _save_offsets(self) -> None:
        assert self._context is not None
        assert self._transactions is not None
        self._transactions.save()
        self._context.offsets.save()

    def _scan_clients(self) -> None:
        assert self._context is not None
        now_ms = self._clock.now_ms()
        self._context.clients.expire(now_ms - self._context.config.client_expiry_ms)
        self._context.locks.expire(now_ms)

    def _sample(self) -> None:
        assert self._context is not None
        self._context.stats.sample(self._clock.now_ms())

    # -- stop ------------------------------------------------------------------------------------

    async def stop(self) -> None:
        """Leave the NameServers, finish what is under way, make everything durable."""
        if self._registration is not None:
            await self._registration.stop()
        for timer in self._timers.values():
            timer.cancel()
        for part in (self._delays, self._transactions):
            if part is not None:
                part.stop()
        if self._timed is not None:
            await self._timed.stop()
        if self._context is not None:
            self._context.waiting_pulls.stop()
        if self._inbox is not None:
            await self._inbox.close()
        if self._server is not None:
            await self._server.stop()
        if self._store is not None:
            try:
                self._save_everything(self._store)
            finally:
                self._store.close()

    def _save_everything(self, store: MessageStore) -> None:
        if self._context is None or self._delays is None:
            return
        self._save_tables()
        # How far delays and transactions have come may be saved as far as the disk has it.
        with contextlib.suppress(StoreFailed):
            store.flush()
        self._save_offsets()
        self._delays.save()
        if self._timed is not None:
            self._timed.finish()
