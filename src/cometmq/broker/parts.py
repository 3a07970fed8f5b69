"""All that makes a broker of an open store and an address, wired to one another."""

import asyncio
import contextlib
from collections.abc import Callable

from cometmq.clock import Clock
from cometmq.protocol.host import Host
from cometmq.protocol.scan import split_queue_key
from cometmq.store.config_file import ConfigFile
from cometmq.store.disk import Disk
from cometmq.store.errors import StoreFailed
from cometmq.store.message_store import MessageStore
from cometmq.store.turns import LoopTurns
from cometmq.transport.connection import Handler

from .admin import admin_handlers
from .archive_gate import ArchiveGate
from .clients import Clients
from .clockwork import Clockwork
from .config import BrokerConfig
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

TABLE_SAVE_INTERVAL_S = 1.0
CLIENT_SCAN_INTERVAL_S = 10.0


class Parts:
    def __init__(
        self,
        config: BrokerConfig,
        store: MessageStore,
        address: Host,
        clock: Clock,
        disk: Disk,
        archive: ArchiveGate,
        on_failure: Callable[[StoreFailed], None] | None,
    ) -> None:
        self._store = store
        self._clock = clock
        self._disk = disk
        self._clockwork = Clockwork()
        self.context = context = self._build_context(config, address, archive)
        archive.know(store, context.topics, context.offsets)
        self.inbox = Inbox(context)
        self.delays = Delays(store, self.inbox, clock, self._file("delayOffset"))
        self.transactions = Transactions(context, self.inbox, self._file("transactionChecks"))
        self.timers = Timers(context, self.inbox, disk, on_failure) if config.timers else None
        self.registration = Registration(context)
        context.topics.on_change = self._topics_changed
        context.announce = self.registration.announce

    def _build_context(self, config: BrokerConfig, address: Host, archive: ArchiveGate) -> Context:
        store, clock = self._store, self._clock
        groups = Groups(config, self._file("subscriptionGroup"), clock)

        def notifies(name: str) -> bool:
            group = groups.get(name)
            return group is None or group.notify_consumer_ids_changed_enable

        topics = Topics(config, len(store.config.delays_ms()), self._file("topics"), clock)
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
            archive=archive,
            address=address,
            started_ms=clock.now_ms(),
        )

    def _file(self, name: str) -> ConfigFile:
        return ConfigFile(self._store.config.root / "config" / f"{name}.json", self._disk)

    def handlers(self) -> dict[int, Handler]:
        context, inbox = self.context, self.inbox
        retries = Retries(context, inbox)
        sends = Sends(context, inbox, retries, self.transactions)
        parts = (
            sends, Replies(context, sends), retries, self.transactions, Pulls(context),
            Sessions(context), Positions(context), Queries(context),
            Recalls(context, inbox, self.timers),
        )  # fmt: skip
        served = {code: handler for part in parts for code, handler in part.handlers().items()}
        return {**served, **admin_handlers(context, inbox, self.delays)}

    # -- events ----------------------------------------------------------------------------------

    def _arrived(self, queues: list[bytes]) -> None:
        self.context.waiting_pulls.arrived(queues)
        self.delays.arrived(queues)
        if self.timers is not None:
            self.timers.arrived(queues)

    def _topics_changed(self) -> None:
        """Tell NameServers, and save before the turn's answers leave: nobody may be told that
        a message is stored in a topic that a restart does not know."""
        self.registration.changed()
        asyncio.get_running_loop().call_soon(self.context.topics.save)

    def poke(self) -> None:
        """The clock was moved: look at once for what has become due."""
        self.delays.poke()
        self.transactions.look()
        if self.timers is not None:
            self.timers.poke()
        self._scan_clients()
        self._store.clean(by_hand=False)

    # -- life ------------------------------------------------------------------------------------

    def start(self) -> None:
        """Take up what is due, and what comes again and again."""
        config, every = self.context.config, self._clockwork.every
        self.delays.start()
        self.transactions.start()
        if self.timers is not None:
            self.timers.start()
            every(config.timer_save_interval_ms / 1000, self.timers.save_soon)
        every(TABLE_SAVE_INTERVAL_S, self._save_tables)
        every(config.offset_save_interval_ms / 1000, self._save_offsets)
        every(config.delay_save_interval_ms / 1000, self.delays.save)
        every(CLIENT_SCAN_INTERVAL_S, self._scan_clients)
        every(SAMPLE_INTERVAL_MS / 1000, self._sample)

    async def stop(self) -> None:
        """Leave the NameServers, begin nothing more, and let all who wait have their answers."""
        await self.registration.stop()
        await self._end_work()

    async def abandon(self) -> None:
        """The same, but nobody is told, and nothing is to be saved."""
        await self.registration.abandon()
        await self._end_work()
        if self.timers is not None:
            self.timers.abandon()

    async def _end_work(self) -> None:
        self._clockwork.stop()
        self.delays.stop()
        self.transactions.stop()
        if self.timers is not None:
            await self.timers.stop()
        self.context.waiting_pulls.stop()
        await self.inbox.close()

    def save(self) -> None:
        """The last thing to do before the store is closed."""
        self._save_tables()
        # How far delays and transactions have come may be saved as far as the disk has it.
        with contextlib.suppress(StoreFailed):
            self._store.flush()
        self._save_offsets()
        self.delays.save()
        if self.timers is not None:
            self.timers.finish()

    def _save_tables(self) -> None:
        self.context.topics.save()
        self.context.groups.save()

    def _save_offsets(self) -> None:
        self.transactions.save()
        self.context.offsets.save()

    def _scan_clients(self) -> None:
        now_ms = self._clock.now_ms()
        self.context.clients.expire(now_ms - self.context.config.client_expiry_ms)
        self.context.locks.expire(now_ms)

    def _sample(self) -> None:
        self.context.stats.sample(self._clock.now_ms())
