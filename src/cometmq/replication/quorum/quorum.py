"""A member of a Raft group at work: clock, network and store around the core.

Everything that the core is told goes through `_do`, which first tells it what was appended: so the
core always knows where the log ends. A member leads when it is elected, and *serves* as leader when
the first record of its epoch is confirmed and everything before it dispatched. Only then messages
may be appended: only then it is known where each queue goes on.
"""

import asyncio
import logging
import random
from collections.abc import Callable
from typing import Final, ParamSpec

import msgspec

from cometmq.protocol.host import Host
from cometmq.raft.core import FAR_MS, Core
from cometmq.raft.effects import Role, RoleChanged
from cometmq.raft.errors import NotLeader, RaftError, Refused
from cometmq.raft.hard_state import Recovered
from cometmq.raft.member import Member
from cometmq.raft.members import Members, group
from cometmq.raft.messages import Message
from cometmq.raft.settings import RaftSettings
from cometmq.store.disk import Disk
from cometmq.store.errors import LeadershipLost, StoreError, StoreFailed, StoreMismatch
from cometmq.store.message_store import MessageStore
from cometmq.store.recovery import RecoveryReport
from cometmq.store.turns import LoopTurns
from cometmq.transport.tls import MutualTls

from .address_book import AddressBook
from .links import Links
from .log_files import LogFiles
from .peers import Peers, broker_id_of
from .state_file import StateFile
from .wire import VERSION, Hello

log = logging.getLogger(__name__)
LOOK_INTERVAL_S: Final = 1.0
"""How often it is looked for space, and for files that retention deleted."""
HAND_OVER_S: Final = 2.0
HELD_UP_MS: Final = 50
"""A tick that is later than that was held up, by a busy machine or a stop of the process."""
LISTEN_S: Final = 0.01
"""What the others said meanwhile waits in the sockets, and counts before their silence does."""
_POLL_S: Final = 0.01
Arguments = ParamSpec("Arguments")


class QuorumSettings(msgspec.Struct, frozen=True):
    group: str
    member: str
    """The id of this broker in its group."""
    peers: Peers
    joins: bool = False
    """Whether the group exists already, and will let this member in."""
    confirm_timeout_ms: int = 3000
    """How long a send waits for a majority."""
    raft: RaftSettings = RaftSettings()


class Quorum:
    def __init__(
        self,
        settings: QuorumSettings,
        store: MessageStore,
        turns: LoopTurns,
        report: RecoveryReport,
        disk: Disk,
        on_failure: Callable[[StoreFailed], None] | None = None,
        tls: MutualTls | None = None,
    ) -> None:
        self.on_change: Callable[[], None] = lambda: None
        """Called when this member begins or ends to serve as leader, or hears of another one."""
        self.on_addresses: Callable[[], None] = lambda: None
        """Called when this member, as leader, was told where another one is, or forgot one."""
        self.settings = settings
        self.failure: StoreFailed | None = None
        self._store = store
        self._turns = turns
        self._on_failure = on_failure
        self._loop = asyncio.get_running_loop()
        state_file = StateFile(store.config.root, settings.group, settings.member, disk)
        self._files = LogFiles(
            store, state_file, synced=self._synced, saved=self._saved, failed=self._fail
        )
        self._links = Links(
            Hello(VERSION, settings.group, settings.member, "", store.config.commit_log_file_bytes),
            self._received,
            tls,
        )
        self._book = AddressBook(settings.peers.addresses)
        self._expected: set[str] = set()
        """Who was introduced to this leader and may become a member."""
        self._core = Core(
            settings.member,
            Members() if settings.joins else group(*settings.peers.addresses),
            self._recovered(state_file, report),
            self._files,
            settings.raft,
            random.Random(),  # noqa: S311 - spreads elections in time
            self._now_ms(),
        )
        self._member = Member(self._core, self._files, self._links, self)
        self._timer: asyncio.TimerHandle | None = None
        self._timer_ms = FAR_MS
        self._listened = False
        """A tick that may find the others silent was due, and they had a last chance to be heard.
        A follower that was held up cannot know it: its patience may have ended only just."""
        self._looking: asyncio.TimerHandle | None = None
        self._running = False
        self._serves = False

    def _recovered(self, state_file: StateFile, report: RecoveryReport) -> Recovered:
        root, end = self._store.config.root, self._store.appended.value
        state = state_file.load()
        if state is None and end > 0:
            raise StoreMismatch(
                f"{root} has messages of a broker outside of group {self.settings.group}: a member "
                "begins with an empty store"
            )
        if report.lost:
            raise StoreMismatch(
                f"{root} lost data that was on disk once, and may have been acknowledged to the "
                "group: remove this member, and let it come back with a new dLegerSelfId and an "
                "empty store"
            )
        return Recovered(state, self._store.commit_log.start_offset, end, report.confirmed)

    # -- life ------------------------------------------------------------------------------------

    async def listen(self, host: str, port: int) -> Host:
        return await self._links.listen(host, port)

    def start(self) -> None:
        self._running = True
        self._links.know(self.addresses)
        self._do(self._member.start)
        self._look()

    async def abandon(self) -> None:
        """Leave, whatever the role."""
        self._running = False
        for timer in (self._timer, self._looking):
            if timer is not None:
                timer.cancel()
        self._end_service("this member stops")
        await self._links.stop()
        self._files.close()

    async def hand_over(self) -> None:
        """Let another member lead, if this one does and one can: then nobody has to notice first
        that this one is gone."""
        if not self._running or not self.leads:
            return
        for other in sorted(self.others(), key=self._core.stored_by, reverse=True):
            try:
                self.transfer(other)
            except Refused as error:
                log.info("not handed over to %s: %s", other, error)
                continue
            await self._led_no_more()
            return

    async def _led_no_more(self) -> None:
        deadline = self._loop.time() + HAND_OVER_S
        while self.leads and self._loop.time() < deadline:
            await asyncio.sleep(_POLL_S)

    # -- what holds now --------------------------------------------------------------------------

    @property
    def serves(self) -> bool:
        """Whether this member takes messages, as far as it knows."""
        return self._serves

    @property
    def leads(self) -> bool:
        return self._core.role is Role.LEADER

    @property
    def is_following(self) -> bool:
        """Whether there is a leader, as far as this member knows."""
        return self._core.leader is not None

    @property
    def leader(self) -> str | None:
        return self._core.leader

    @property
    def epoch(self) -> int:
        return self._core.epoch

    @property
    def members(self) -> Members:
        return self._core.members

    @property
    def addresses(self) -> dict[str, str]:
        return self._book.entries

    @property
    def broker_id(self) -> int:
        """Under which this member registers: 0 for the one that serves."""
        return 0 if self._serves else broker_id_of(self.settings.member)

    def others(self) -> list[str]:
        """Members beside this one who vote."""
        return [m for m in self._core.members.voters if m != self.settings.member]

    def stored_by(self, member: str) -> int:
        """How much of the log a member has, as far as this one knows."""
        return self._core.stored_by(member)

    # -- appends ---------------------------------------------------------------------------------

    def why_closed(self) -> str | None:
        """Why nothing may be appended now, if it is so."""
        if self._serves and self._core.may_append:
            return None
        leader = self._core.leader
        if leader is None or leader == self.settings.member:
            return "this group has no leader that takes messages just now"
        return f"this broker does not lead its group now, {leader} does"

    def no_room(self) -> None:
        """A message found no room: another member may have some."""
        self._do(self._member.no_room)

    def appended(self) -> None:
        self._do(lambda _: None)

    def wanted(self) -> bool:
        return True

    def when_replicated(self, offset: int, future: "asyncio.Future[None]") -> None:
        if not self._serves:
            raise LeadershipLost("this broker has just stopped to lead its group")
        self._store.confirmed.when_reached(offset, self.settings.confirm_timeout_ms, future)

    # -- what operators ask for ------------------------------------------------------------------

    def transfer(self, to: str) -> None:
        """Hand over to another voter. Refused if that cannot be."""
        self._ask(self._member.transfer, to)

    def introduce(self, member: str, address: str) -> None:
        """Know, and let the others know, where somebody is who may become a member."""
        self._expected.add(member)
        self._book.add(member, address)
        self._links.know(self.addresses)
        self.on_addresses()

    def change(self, members: Members) -> None:
        """Let one member come, go or become a voter; Refused if that cannot be just now."""
        self._ask(self._member.change, members)

    def know(self, addresses: dict[str, str]) -> None:
        """Where all members are, as the log tells."""
        self._book.replace(addresses)
        self._links.know(self.addresses)

    def _forget_who_left(self) -> None:
        """Only a leader's members are sure to be confirmed; the others hear of it by the log."""
        left = self.addresses.keys() - self._core.members.everybody - self._expected
        if not left or not self._core.is_settled:
            return
        self._book.forget(left)
        self._links.know(self.addresses)
        # Later: it is written into the log, where the core is at work just now.
        self._loop.call_soon(self.on_addresses)

    def _ask(self, what: Callable[..., None], *arguments: object) -> None:
        if not self.leads:
            raise NotLeader(f"the leader is {self._core.leader or 'not known'}")
        refusals: list[Refused] = []

        def ask(now_ms: int) -> None:
            try:
                what(now_ms, *arguments)
            except Refused as refused:
                refusals.append(refused)

        self._do(ask)
        if refusals:
            raise refusals[0]

    # -- the audience of the core ----------------------------------------------------------------

    def role_changed(self, news: RoleChanged) -> None:
        log.info("%s: %s in epoch %d, leader %s",
                 self.settings.member, news.role.value, news.epoch, news.leader)  # fmt: skip
        self._expected.clear()
        self._end_service(f"{self.settings.member} does not lead epoch {news.epoch}")
        self._tell_change()

    def confirmed(self, offset: int) -> None:
        self._store.confirm(offset)
        self._turns.confirmed()
        if not self.leads:
            return
        self._forget_who_left()
        if not self._serves:
            # Behind the dispatch that was planned just now.
            self._loop.call_soon(self._begin_service)

    def _begin_service(self) -> None:
        end = self._store.appended.value
        if self._serves or not self._running or not self.leads or not self._core.may_append:
            return
        if self._store.dispatched.value < end:
            return
        self._store.forget_queue_ends()
        self._serves = True
        log.info("%s serves as leader of epoch %d", self.settings.member, self.epoch)
        self.on_change()

    def _end_service(self, reason: str) -> None:
        self._serves = False
        self._store.confirmed.give_up(LeadershipLost(reason))

    def _tell_change(self) -> None:
        """Later: whoever is told may want something of the core, which is at work just now."""
        self._loop.call_soon(lambda: self.on_change() if self._running else None)

    # -- inputs of the core ----------------------------------------------------------------------

    def _received(self, sender: str, message: Message) -> None:
        self._do(self._member.receive, sender, message)

    def _synced(self, end: int, generation: int) -> None:
        self._do(self._member.synced, end, generation)

    def _saved(self, number: int) -> None:
        self._do(self._member.saved, number)

    def _tick(self) -> None:
        self._timer = None
        late_ms = self._now_ms() - self._core.wake_ms
        if late_ms < 0:
            self._listened = False
            self._plan()
        elif self._listened or (self.leads and late_ms <= HELD_UP_MS):
            self._listened = False
            self._do(self._member.tick)
        else:
            self._listened = True
            self._timer = self._loop.call_later(LISTEN_S, self._tick)

    def _look(self) -> None:
        self._looking = self._loop.call_later(LOOK_INTERVAL_S, self._look)
        start = self._store.commit_log.start_offset
        if start > self._core.log.start:
            self._do(self._member.trimmed, start)
        if self._core.is_full and self._store.has_room():
            self._do(self._member.room_again)
        self._begin_service()

    def _do(self, what: Callable[..., None], *arguments: object) -> None:
        if not self._running or self.failure is not None:
            return
        now_ms = self._now_ms()
        try:
            if self.leads and self._store.appended.value > self._core.log.end:
                self._member.appended(now_ms)
            what(now_ms, *arguments)
        except (RaftError, StoreError, OSError) as error:
            self._fail(StoreFailed(f"member {self.settings.member} has to stop: {error}"))
            return
        self._plan()

    def _plan(self) -> None:
        """See to it that `tick` comes in time; a timer that is early looks again."""
        wake_ms = self._core.wake_ms
        if self._timer is not None:
            if self._timer_ms <= wake_ms:
                return
            self._timer.cancel()
        self._timer_ms = wake_ms
        self._timer = None
        if wake_ms < FAR_MS:
            self._timer = self._loop.call_at(wake_ms / 1000 + 0.001, self._tick)

    def _fail(self, failure: StoreFailed) -> None:
        if self.failure is None:
            self.failure = failure
            log.critical("%s", failure)
            self._end_service(str(failure))
            if self._on_failure is not None:
                self._on_failure(failure)

    def _now_ms(self) -> int:
        return int(self._loop.time() * 1000)
