"""A member in the simulation, with its clock and its disk; it crashes, restarts and pauses."""

import random
from collections.abc import Callable
from typing import Protocol

from cometmq.raft.core import FAR_MS, Core
from cometmq.raft.effects import Role, RoleChanged
from cometmq.raft.hard_state import HardState
from cometmq.raft.member import Member
from cometmq.raft.members import Members
from cometmq.raft.messages import Message
from cometmq.raft.ports import NoRoom
from cometmq.raft.settings import RaftSettings

from .records import record
from .sim_disk import Crashed, SimDisk

SECOND_US = 1_000_000
BACKLOG_MAX = 500
QUICK_DISK_US = (200, 3000)


class World(Protocol):
    """The simulation, as a node sees it."""

    now_us: int
    chance: random.Random

    def after(self, delay_us: int, action: Callable[..., None], *arguments: object) -> None: ...

    def transmit(self, sender: str, to: str, message: Message) -> None: ...

    def on_step(self, node: "Node") -> None: ...

    def on_started(self, node: "Node") -> None: ...

    def on_elected(self, node: "Node") -> None: ...

    def on_died(self, node: "Node") -> None: ...

    def on_confirmed(self, node: "Node", before: int) -> None: ...

    def on_acknowledged(self, node: "Node", start: int, data: bytes) -> None: ...

    def note(self, text: str) -> None: ...


class Node:
    def __init__(self, world: World, name: str, bootstrap: Members, settings: RaftSettings) -> None:
        self.world = world
        self.id = name
        self.disk = SimDisk(self)
        self.member: Member | None = None
        self.paused = False
        self.sync_delay_us = self.save_delay_us = QUICK_DISK_US
        self.sync_fails = False
        self.doomed: int | None = None
        self.doomed_at: str | None = None
        self.confirmed_told = 0
        self._bootstrap = bootstrap
        self._settings = settings
        self._clock_rate = world.chance.uniform(0.95, 1.05)
        self._clock_ahead_ms = world.chance.randrange(1_000_000)
        self._incarnation = 0
        self._backlog: list[tuple[Callable[..., None], tuple[object, ...]]] = []
        self._wake_us: int | None = None
        self._waiting: list[tuple[int, bytes]] = []

    # -- life ------------------------------------------------------------------------------------

    def start(self) -> None:
        if self.member is not None:
            return
        self._incarnation += 1
        self.spare()
        recovered = self.disk.recover()
        self.confirmed_told = max(recovered.confirmed, recovered.start)
        chance = random.Random(self.world.chance.getrandbits(64))
        core = Core(
            self.id, self._bootstrap, recovered, self.disk, self._settings, chance, self.now_ms
        )
        self.member = Member(core, self.disk, self, self)
        self.world.note(f"{self.id} starts at {self.disk.start}–{self.disk.end}")
        self.world.on_started(self)
        self._do(self.member.start)

    def crash(self) -> None:
        if self.member is None:
            return
        self.world.note(f"{self.id} crashes")
        self.member, self.paused = None, False
        self._backlog.clear()
        self._waiting.clear()
        self._wake_us = None
        self.disk.crash(self.world.chance)

    def die(self) -> None:
        """Crash by itself; somebody will start it again."""
        self.crash()
        self.world.on_died(self)

    def spare(self) -> None:
        self.doomed, self.doomed_at, self.sync_fails = None, None, False

    def pause(self) -> None:
        self.paused = self.member is not None

    def resume(self) -> None:
        if not self.paused:
            return
        self.paused = False
        backlog, self._backlog = self._backlog, []
        for action, arguments in backlog:
            if self.member is not None:
                action(*arguments)

    @property
    def core(self) -> Core:
        assert self.member is not None
        return self.member.core

    @property
    def has_writes_under_way(self) -> bool:
        """Whether the core knows of a write, a cut or a new beginning that the disk does not have
        yet. A log may begin anew just where the old one ends."""
        log = self.core.log
        return (log.start, log.end) != (self.disk.start, self.disk.end)

    @property
    def is_up(self) -> bool:
        return self.member is not None and not self.paused

    @property
    def now_ms(self) -> int:
        return self._clock_ahead_ms + int(self.world.now_us * self._clock_rate / 1000)

    # -- inputs ----------------------------------------------------------------------------------

    def receive(self, sender: str, message: Message) -> None:
        if self.member is None:
            return
        if self.paused:
            # What waits in sockets is bounded; what comes behind it is lost.
            if len(self._backlog) < BACKLOG_MAX:
                self._backlog.append((self.receive, (sender, message)))
            return
        self._do(self.member.receive, sender, message)

    def append(self, texts: list[bytes]) -> None:
        if not self.is_up or not self.core.may_append:
            return
        assert self.member is not None
        start = end = self.disk.end
        assert start == self.core.log.end
        data = b""
        for text in texts:
            data += record(end, self.core.epoch, text)
            end = start + len(data)
        try:
            self.disk.write(start, data)
        except NoRoom:
            self._do(self.member.no_room)
            return
        except Crashed:
            self.die()
            return
        self._waiting.append((start, data))
        self._do(self.member.appended)

    def trim(self, chance: float) -> None:
        """Let retention delete some of what is confirmed."""
        if self.member is None or self.disk.start > self.confirmed_told:
            return
        start = self.disk.start + int((self.confirmed_told - self.disk.start) * chance)
        border = self.disk.start
        while border < start:
            border += len(self.disk.read(border, self.confirmed_told, 1))
        self.disk.trim(border)
        self._do(self.member.trimmed, border)

    def no_room(self, room_bytes: int) -> None:
        self.disk.room = len(self.disk.data) + room_bytes

    def room_again(self, room_bytes: int) -> None:
        self.disk.room = room_bytes
        if self.member is not None:
            self._do(self.member.room_again)

    def transfer(self, to: str) -> None:
        assert self.member is not None
        self._do(self.member.transfer, to)

    def change(self, members: Members) -> None:
        assert self.member is not None
        self._do(self.member.change, members)

    # -- the ports -------------------------------------------------------------------------------

    def send(self, to: str, message: Message) -> None:
        self.wrote("message")
        self.world.transmit(self.id, to, message)

    def role_changed(self, news: RoleChanged) -> None:
        self.world.note(f"{self.id} is {news.role.value} in epoch {news.epoch} under {news.leader}")
        self._waiting.clear()
        if news.role is Role.LEADER:
            self.world.on_elected(self)

    def confirmed(self, offset: int) -> None:
        before, self.confirmed_told = self.confirmed_told, offset
        self.world.on_confirmed(self, before)
        while self._waiting and self._waiting[0][0] + len(self._waiting[0][1]) <= offset:
            start, data = self._waiting.pop(0)
            self.world.on_acknowledged(self, start, data)
        if self.world.chance.random() < 0.3:
            self.disk.confirmed = offset

    def later_synced(self, end: int, generation: int) -> None:
        self._later(self.sync_delay_us, self._sync_ends, end, generation)

    def later_saved(self, state: HardState, number: int) -> None:
        self._later(self.save_delay_us, self._save_ends, state, number)

    def wrote(self, what: str) -> None:
        if self.doomed is not None:
            self.doomed -= 1
        if self.doomed == -1 or self.doomed_at == what:
            raise Crashed(what)

    # -- how things come back --------------------------------------------------------------------

    def _later(
        self, delay_us: tuple[int, int], action: Callable[..., None], *arguments: object
    ) -> None:
        self.world.after(
            self.world.chance.randint(*delay_us),
            self._if_alive,
            self._incarnation,
            action,
            *arguments,
        )

    def _if_alive(self, incarnation: int, action: Callable[..., None], *arguments: object) -> None:
        """What the disk and the clock tell comes late in a pause, but it comes."""
        if self.member is None or incarnation != self._incarnation:
            return
        if self.paused:
            self._backlog.append((action, arguments))
        else:
            action(*arguments)

    def _sync_ends(self, end: int, generation: int) -> None:
        assert self.member is not None
        if self.sync_fails:
            self.die()
            return
        self.disk.sync_done()
        self._do(self.member.synced, end, generation)

    def _save_ends(self, state: HardState, number: int) -> None:
        assert self.member is not None
        if self.sync_fails:
            self.die()
            return
        self.disk.save_done(state)
        self._do(self.member.saved, number)

    def _wake(self, at_us: int) -> None:
        if self._wake_us == at_us:
            self._wake_us = None
            assert self.member is not None
            self._do(self.member.tick)

    def _do(self, action: Callable[..., None], *arguments: object) -> None:
        try:
            action(self.now_ms, *arguments)
        except Crashed:
            self.die()
            return
        self.world.on_step(self)
        self._plan_wake()

    def _plan_wake(self) -> None:
        wake_ms = self.core.wake_ms
        if wake_ms == FAR_MS:
            return
        us = int((wake_ms - self._clock_ahead_ms) * 1000 / self._clock_rate) + 1000
        us = max(us, self.world.now_us + 1)
        if self._wake_us is None or us < self._wake_us:
            self._wake_us = us
            self.world.after(us - self.world.now_us, self._if_alive, self._incarnation,
                             self._wake, us)  # fmt: skip

    @property
    def leads(self) -> bool:
        return self.member is not None and self.core.role is Role.LEADER
