"""All that makes a broker of an open store and an address, wired to one another."""

import asyncio
import contextlib
import logging
from collections.abc import Callable

from cometmq.clock import Clock
from cometmq.protocol.command import Command
from cometmq.protocol.host import Host
from cometmq.protocol.scan import split_queue_key
from cometmq.replication.acks import AckPolicy
from cometmq.replication.follower import Follower
from cometmq.replication.quorum.quorum import Quorum
from cometmq.replication.slaves import Slaves
from cometmq.store.config_file import ConfigFile
from cometmq.store.disk import Disk
from cometmq.store.errors import StoreFailed
from cometmq.store.message_store import MessageStore
from cometmq.store.recovery import RecoveryReport
from cometmq.store.turns import LoopTurns
from cometmq.transport.connection import Answer, Connection, Handler
from cometmq.transport.latencies import Latencies
from cometmq.transport.tls import client_context

from .admin import admin_handlers
from .archive_gate import ArchiveGate
from .clients import Clients
from .clockwork import Clockwork
from .config import BrokerConfig, BrokerRole
from .context import Context
from .duties import Duties
from .express import Express
from .groups import Groups
from .inbox import Inbox
from .locks import QueueLocks
from .offsets import ConsumerOffsets
from .positions import Positions
from .pulls import Pulls
from .queries import Queries
from .quorum.replicated_tables import ReplicatedTables
from .registration import Registration
from .replies import Replies
from .retries import Retries
from .sends import Sends
from .sessions import Sessions
from .slave.copies import Copies
from .slave.refusals import refusals
from .stats import SAMPLE_INTERVAL_MS, Stats
from .timers.recall import Recalls
from .topics import Topics
from .waiting_pulls import WaitingPulls

log = logging.getLogger(__name__)
TABLE_SAVE_INTERVAL_S = 1.0
CLIENT_SCAN_INTERVAL_S = 10.0
PROGRESS_INTERVAL_S = 1.0
"""How often a leader looks whether its delays have come on."""


class Parts:
    def __init__(
        self,
        config: BrokerConfig,
        store: MessageStore,
        address: Host,
        clock: Clock,
        disk: Disk,
        archive: ArchiveGate,
        report: RecoveryReport,
        on_failure: Callable[[StoreFailed], None] | None,
    ) -> None:
        self.on_role: Callable[[], None] = lambda: None
        """Called when `handlers` are others than before."""
        self._store = store
        self._clock = clock
        self._disk = disk
        self._on_failure = on_failure
        self._clockwork = Clockwork()
        self.context = context = self._build_context(config, address, archive)
        archive.know(store, context.topics, context.offsets)
        if config.raft:
            self._join(report)
        self.inbox = Inbox(context)
        self.duties = self._new_duties()
        self.registration = Registration(context)
        context.topics.on_change = self._topics_changed
        context.announce = self.registration.announce
        self.copies: Copies | None = None
        self.tables: ReplicatedTables | None = None
        self._turning: asyncio.Task[None] | None = None
        self._led: int | None = None
        """The epoch whose duties a leader does."""
        if context.quorum is not None:
            self._replicate_tables(context.quorum)
        elif config.is_slave:
            self._follow()
        else:
            self._lead()

    def _new_duties(self) -> Duties:
        return Duties(self.context, self.inbox, self._disk, self._on_failure)

    def _join(self, report: RecoveryReport) -> None:
        """Be a member of a Raft group, whose majority takes the place of this disk."""
        context = self.context
        context.quorum = context.turns.replicas = Quorum(
            context.config.quorum(),
            self._store,
            context.turns,
            report,
            self._disk,
            self._on_failure,
            context.config.raft_tls(),
        )
        context.turns.waits_for_disk = False

    def _replicate_tables(self, quorum: Quorum) -> None:
        context = self.context
        self.tables = tables = ReplicatedTables(
            context, self.inbox, quorum, self._disk, self._file("raftTables")
        )
        quorum.on_change = self._role_changed
        context.groups.on_change = tables.changed
        context.offsets.on_move = tables.moved

    def _lead(self) -> None:
        context = self.context
        context.slaves = Slaves(
            self._store,
            context.config.pace(),
            self._ack_policy,
            lambda: context.config.ha_gap_bytes,
        )
        if context.config.role is BrokerRole.SYNC_MASTER:
            context.turns.replicas = context.slaves
            if context.config.in_sync_replicas == 1:
                log.warning(
                    "SYNC_MASTER with inSyncReplicas=1 waits for no slave, as in RocketMQ 5: set 2"
                )

    def _ack_policy(self) -> AckPolicy:
        """As the settings are now: some of it may be changed while the broker runs."""
        return self.context.config.ack_policy()

    def _follow(self) -> None:
        context = self.context
        context.follower = follower = Follower(
            self._store,
            context.turns,
            context.config.pace(),
            ha_address=context.config.ha_master,
            tls=client_context() if context.config.tls_to_name_servers else None,
        )
        follower.on_change = self._master_changed
        self.copies = Copies(context, follower, self.duties.delays, self._disk)

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
        """As the role of this broker is now."""
        context, inbox, duties = self.context, self.inbox, self.duties
        retries = Retries(context, inbox)
        sends = Sends(context, inbox, retries, duties.transactions)
        parts = (
            sends, Replies(context, sends), retries, duties.transactions, Pulls(context),
            Sessions(context), Positions(context), Queries(context),
            Recalls(context, inbox, duties.timers),
        )  # fmt: skip
        served = {code: handler for part in parts for code, handler in part.handlers().items()}
        refused = {} if self._is_in_charge else refusals()
        served |= admin_handlers(context, inbox, duties.delays, duties.timers)
        return {code: self._caught_up(handler) for code, handler in (served | refused).items()}

    def _caught_up(self, handler: Handler) -> Handler:
        """Whoever asks finds everything that was acknowledged before."""
        catch_up = self.context.turns.catch_up

        def handle(connection: Connection, command: Command) -> Answer:
            catch_up()
            return handler(connection, command)

        return handle

    @property
    def _is_in_charge(self) -> bool:
        """Whether this broker does all that a master does. A leader has to take over first."""
        return self.context.is_master and (self.tables is None or self._led is not None)

    def express(self, latencies: Latencies | None) -> Express | None:
        """The short way of usual sends, if the role of this broker lets it take any."""
        return Express(self.context, self.inbox, latencies) if self._is_in_charge else None

    # -- events ----------------------------------------------------------------------------------

    def _arrived(self, queues: list[bytes]) -> None:
        self.context.waiting_pulls.arrived(queues)
        if self.copies is not None:
            self.copies.arrived(queues)
        if self.tables is not None:
            self.tables.arrived(queues)
        self.duties.arrived(queues)

    def _master_changed(self) -> None:
        """A slave has found its master, or lost it."""
        self.context.waiting_pulls.ask_again()
        self.registration.changed()
        if self.copies is not None:
            self.copies.hurry()

    def _role_changed(self) -> None:
        """This member of a group leads, or does no more, or another one does."""
        self.on_role()
        self.context.waiting_pulls.ask_again()
        self.registration.changed()
        if self._turning is None or self._turning.done():
            self._turning = asyncio.create_task(self._change_duties())

    async def _change_duties(self) -> None:
        """Have the duties that belong to the role, which may change meanwhile."""
        quorum, tables = self.context.quorum, self.tables
        assert quorum is not None
        assert tables is not None
        while self._led != (quorum.epoch if quorum.serves else None):
            if self._led is not None:
                tables.follow()
                self._led = None
                await self.duties.stop()
                self.duties.abandon()
                self.duties = self._new_duties()
            elif quorum.serves:
                self._led = quorum.epoch
                try:
                    self._take_over(tables, quorum.epoch)
                except OSError as error:
                    log.error("this member cannot lead: %s", error)
                    quorum.no_room()
            self.on_role()
            self.registration.changed()

    def _take_over(self, tables: ReplicatedTables, epoch: int) -> None:
        tables.take_over()
        self.context.topics.begin_epoch(epoch)
        self.duties = self._new_duties()
        # First they must know where to go on: that is part of what is replicated.
        self.duties.start()
        tables.lead(self.duties)

    def _topics_changed(self) -> None:
        """Tell NameServers, and save before the turn's answers leave: nobody may be told that
        a message is stored in a topic that a restart does not know."""
        if self.tables is not None:
            self.tables.changed()
        self.registration.changed()
        asyncio.get_running_loop().call_soon(self.context.topics.save)

    def poke(self) -> None:
        """The clock was moved: look at once for what has become due."""
        self.duties.poke()
        self._scan_clients()
        self._store.clean(by_hand=False)

    # -- life ------------------------------------------------------------------------------------

    def start(self) -> None:
        """Take up what is due, and what comes again and again."""
        config, every = self.context.config, self._clockwork.every
        if self.context.is_master:
            self.duties.start()
        if self.tables is not None:
            every(PROGRESS_INTERVAL_S, self.tables.note_progress)
        every(TABLE_SAVE_INTERVAL_S, self._save_tables)
        every(config.offset_save_interval_ms / 1000, self._save_offsets)
        every(CLIENT_SCAN_INTERVAL_S, self._scan_clients)
        every(SAMPLE_INTERVAL_MS / 1000, self._sample)

    def follow(self) -> None:
        """Begin to copy, if this is a slave, or to be a member of a group."""
        if self.context.quorum is not None:
            assert self.tables is not None
            # What recovery dispatched nobody was told of.
            self.tables.catch_up()
            if self.tables.addresses:
                self.context.quorum.know(self.tables.addresses)
            self.context.quorum.start()
        if self.context.follower is not None and self.copies is not None:
            self.context.follower.start()
            self.copies.start()

    async def _end_replication(self, *, drains: bool) -> None:
        if self.copies is not None:
            await self.copies.stop()
        if self.context.follower is not None:
            await self.context.follower.stop()
        if self.context.slaves is not None:
            await self.context.slaves.stop(drains=drains)
        if self.context.quorum is not None:
            await self.context.quorum.abandon()

    async def stop(self) -> None:
        """Leave the NameServers, begin nothing more, and let all who wait have their answers."""
        if self.context.quorum is not None:
            await self.context.quorum.hand_over()
        await self.registration.stop()
        await self._end_work(drains=True)

    async def abandon(self) -> None:
        """The same, but nobody is told, and nothing is to be saved."""
        await self.registration.abandon()
        await self._end_work(drains=False)
        self.duties.abandon()

    async def _end_work(self, *, drains: bool) -> None:
        self._clockwork.stop()
        if self._turning is not None:
            await asyncio.wait([self._turning])
        if self.tables is not None:
            self.tables.follow()
        await self.duties.stop()
        self.context.waiting_pulls.stop()
        await self.inbox.close()
        # Last: those who wait for a slave have their answers by now.
        await self._end_replication(drains=drains)

    def save(self) -> None:
        """The last thing to do before the store is closed."""
        self._save_tables()
        # How far delays and transactions have come may be saved as far as the disk has it.
        with contextlib.suppress(StoreFailed):
            self._store.flush()
        self._save_offsets()
        self.duties.finish()

    def _save_tables(self) -> None:
        self.context.topics.save()
        self.context.groups.save()

    def _save_offsets(self) -> None:
        self.duties.save_offsets()
        self.context.offsets.save()
        if self.tables is not None:
            self._save_tables()
            self.tables.save()

    def _scan_clients(self) -> None:
        now_ms = self._clock.now_ms()
        self.context.clients.expire(now_ms - self.context.config.client_expiry_ms)
        self.context.locks.expire(now_ms)

    def _sample(self) -> None:
        self.context.stats.sample(self._clock.now_ms())
