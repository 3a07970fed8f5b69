"""A whole group in one thread: time, network, disks and chance come from a seed.

For some simulated seconds faults befall it while clients append; then everything heals, and the
group has to find together and take appends again. The same seed gives the same run, event by event.
"""

import heapq
import itertools
import random
from collections.abc import Callable

import msgspec

from cometmq.raft.members import Members, group
from cometmq.raft.messages import Message
from cometmq.raft.settings import RaftSettings

from .checker import Checker, Violation
from .sim_disk import ROOMY
from .sim_faults import Faults
from .sim_network import SimNetwork
from .sim_node import QUICK_DISK_US, SECOND_US, Node

STEPS_MAX = 200_000
SETTLE_US = 20 * SECOND_US
"""How long a healed group may take until all of its members have the same."""
FAULTS_S = (10, 50)
HUNT_EVERY = 4
"""Every fourth seed is all about leaders that do not live long."""
CONFIRM_US = 2 * SECOND_US
LOOK_US = 250_000
SMALL = RaftSettings(
    heartbeat_ms=250,
    chunk_bytes_max=150,
    window_bytes_max=600,
    unconfirmed_bytes_max=4000,
    catch_up_bytes=300,
)
"""Real times, but fewer heartbeats; sizes that are reached within seconds."""


class Simulation:
    def __init__(
        self,
        seed: int,
        *,
        voters: int | None = None,
        settings: RaftSettings | None = None,
        trace: Callable[[str], None] | None = None,
    ) -> None:
        self.seed = seed
        self.chance = random.Random(seed)
        self.now_us = 0
        self.hunt = seed % HUNT_EVERY == 0
        self._settings = settings or self._choose_settings()
        self._trace = trace
        self._events: list[tuple[int, int, Callable[..., None], tuple[object, ...]]] = []
        self._numbers = itertools.count()
        self.steps = 0
        self.nodes: dict[str, Node] = {}
        self.network = SimNetwork(self.chance, self.after, self._deliver)
        self.checker = Checker(self.nodes)
        self._texts = itertools.count()
        self._client_pause_us = self.chance.choice((80_000, 300_000, 600_000))
        self.leaders_die = 0.0
        self._troubled = False
        voters = voters or self.chance.choice((1, 2, 3, 3, 3, 3, 4, 5, 5, 5))
        names = [f"n{number}" for number in range(voters)]
        for name in names:
            self.add_node(name, group(*names)).start()

    # -- the run ---------------------------------------------------------------------------------

    def run(self) -> None:
        """Faults, healing, and whether the group lives."""
        faults_end_us = self.chance.randint(*FAULTS_S) * SECOND_US
        self._troubled = True
        self.leaders_die = 0.95 if self.hunt else self.chance.choice((0.0, 0.0, 0.5, 0.9))
        self.network.get_rough()
        Faults(self, self.chance, faults_end_us, hunt=self.hunt).begin()
        self.serve_clients(faults_end_us)
        self.after(LOOK_US, self._look, faults_end_us)
        self.run_until(faults_end_us)
        self.heal()
        self._settle()

    def run_until(self, end_us: int) -> None:
        events = self._events
        while events and events[0][0] <= end_us:
            self.now_us, _, action, arguments = heapq.heappop(events)
            self.steps += 1
            action(*arguments)
            if self.steps > STEPS_MAX:
                raise Violation(f"{STEPS_MAX} events and no end")
        self.now_us = end_us

    def run_until_true(self, fact: Callable[[], bool], within_us: int) -> int:
        """Go on until something holds; how long it took."""
        start_us = self.now_us
        while not fact():
            if self.now_us - start_us >= within_us:
                raise Violation(f"{within_us / SECOND_US} s were not enough for {fact.__name__}")
            self.run_until(self.now_us + 10_000)
        return self.now_us - start_us

    def heal(self) -> None:
        self.note("everything heals")
        self.network.get_calm()
        self._troubled = False
        for node in list(self.nodes.values()):
            node.sync_delay_us = node.save_delay_us = QUICK_DISK_US
            node.spare()
            node.resume()
            node.start()
            node.room_again(ROOMY)

    def _settle(self) -> None:
        self.run_until_true(self.is_settled, SETTLE_US)
        self.checker.logs_match()
        leader = self.some_leader()
        before = self.checker.acknowledged
        leader.append([b"after all"])

        def an_append_is_confirmed() -> bool:
            return self.checker.acknowledged > before

        self.run_until_true(an_append_is_confirmed, CONFIRM_US)
        self.run_until_true(self.is_settled, CONFIRM_US)

    def leader(self) -> Node | None:
        """The leader of the newest epoch, if it takes appends."""
        leaders = [node for node in self.nodes.values() if node.leads]
        newest = max(leaders, key=lambda node: node.core.epoch, default=None)
        return newest if newest is not None and newest.core.may_append else None

    def some_leader(self) -> Node:
        leader = self.leader()
        assert leader is not None
        return leader

    def has_leader(self) -> bool:
        return self.leader() is not None

    def is_settled(self) -> bool:
        """Whether there is a leader, and all of its group have the same, all of it confirmed."""
        leader = self.leader()
        return leader is not None and self.checker.converged(leader, self.group_of(leader))

    def group_of(self, leader: Node) -> list[Node]:
        return [self.nodes[name] for name in leader.core.members.everybody]

    def _choose_settings(self) -> RaftSettings:
        """Now and then all lose their patience together, votes are split, and bytes go slowly."""
        if not self.hunt and self.chance.random() < 0.8:
            return SMALL
        return msgspec.structs.replace(
            SMALL, election_max_ms=930, campaign_max_ms=230, window_bytes_max=SMALL.chunk_bytes_max
        )

    # -- clients ---------------------------------------------------------------------------------

    def serve_clients(self, until_us: int) -> None:
        pause_us = int(self.chance.expovariate(1 / self._client_pause_us)) + 1
        if self.now_us < until_us:
            self.after(pause_us, self._append, until_us)

    def _append(self, until_us: int) -> None:
        self._append_to([node for node in self.nodes.values() if node.leads])
        self.serve_clients(until_us)

    def _append_to(self, leaders: list[Node]) -> None:
        for leader in leaders:
            texts = [
                b"%d %s" % (next(self._texts), b"." * self.chance.randrange(60))
                for _ in range(self.chance.choice((1, 1, 2, 5)))
            ]
            leader.append(texts)

    def _look(self, until_us: int) -> None:
        self.checker.logs_match()
        self.checker.leaders_are_followed(self.now_us)
        if self.now_us < until_us:
            self.after(LOOK_US, self._look, until_us)

    # -- the world of nodes ----------------------------------------------------------------------

    def add_node(self, name: str, bootstrap: Members) -> Node:
        node = self.nodes[name] = Node(self, name, bootstrap, self._settings)
        return node

    def after(self, delay_us: int, action: Callable[..., None], *arguments: object) -> None:
        heapq.heappush(
            self._events, (self.now_us + delay_us, next(self._numbers), action, arguments)
        )

    def transmit(self, sender: str, to: str, message: Message) -> None:
        self.checker.on_message(sender, to, message)
        if self._trace is not None:
            self.note(f"{sender} → {to} {message}")
        self.network.send(sender, to, message)

    def _deliver(self, sender: str, to: str, message: Message) -> None:
        node = self.nodes.get(to)
        if node is not None:
            self.checker.on_delivery(sender, to, message, self.now_us)
            node.receive(sender, message)

    def on_step(self, node: Node) -> None:
        self.checker.on_step(node)

    def on_started(self, node: Node) -> None:
        self.checker.on_started(node)

    def on_elected(self, node: Node) -> None:
        if not self._troubled:
            return
        for _ in range(3):
            self.after(self.chance.randint(1000, 100_000), self._append_to, [node])
        if self.chance.random() < self.leaders_die:
            node.doomed = self.chance.randrange(self.chance.choice((12, 60)))

    def on_died(self, node: Node) -> None:
        self.after(self.chance.randint(10_000, SECOND_US), node.start)

    def on_confirmed(self, node: Node, before: int) -> None:
        self.note(f"{node.id} has {node.confirmed_told} confirmed")
        self.checker.on_confirmed(node, before)

    def on_acknowledged(self, node: Node, start: int, data: bytes) -> None:
        self.checker.on_acknowledged(node, start, data)

    def note(self, text: str) -> None:
        if self._trace is not None:
            self._trace(f"{self.now_us / SECOND_US:10.6f} {text}")
