"""What befalls a group: one small story after the other, at times and to members by chance."""

import random
from collections.abc import Callable
from typing import Protocol

from cometmq.raft.errors import Refused
from cometmq.raft.members import Members

from .sim_disk import ROOMY
from .sim_network import SimNetwork, between
from .sim_node import SECOND_US, Node, World

NODES_MAX = 8
SLOW_DISKS_US = ((200, 3000), (1000, 50_000), (1000, 900_000), (SECOND_US, 3 * SECOND_US))


class Town(World, Protocol):
    """What faults may get hold of."""

    network: SimNetwork
    nodes: dict[str, Node]
    leaders_die: float

    def add_node(self, name: str, bootstrap: Members) -> Node: ...


class Faults:
    def __init__(self, town: Town, chance: random.Random, until_us: int, *, hunt: bool) -> None:
        """`hunt`: only what makes leaders come and go, and their logs differ."""
        self._town = town
        self._chance = chance
        self._until_us = until_us
        stories: list[tuple[Callable[[], None], int]] = [
            (self._crash, 4),
            (self._crash_in_the_middle, 4),
            (self._crash_the_leader, 3),
            (self._crash_at, 6),
            (self._kill_leaders, 2),
            (self._crash_many, 2),
            (self._pause, 3),
            (self._pause_the_leader, 2),
            (self._split, 4),
            (self._isolate_the_leader, 4),
            (self._cut_one_way, 3),
            (self._silence_the_leader, 3),
            (self._weather, 4),
            (self._slow_disk, 4),
            (self._fail_sync, 2),
            (self._fill_disk, 4),
            (self._transfer, 6),
            (self._change_members, 10),
            (self._trim, 4),
        ]
        # Each seed has its own mix: some are all crashes, some all weather.
        self._stories = [story for story, _ in stories]
        self._weights = [weight * chance.choice((0, 1, 1, 3)) for _, weight in stories]
        if hunt:
            hunting = (self._crash_at, self._isolate_the_leader, self._silence_the_leader,
                       self._crash_in_the_middle, self._weather, self._slow_disk)  # fmt: skip
            self._weights = [int(story in hunting) for story in self._stories]
        if not any(self._weights):
            self._weights[0] = 1
        self._pace_us = chance.choice((150_000, 400_000, 900_000))

    def begin(self) -> None:
        self._town.after(int(self._chance.expovariate(1 / self._pace_us)) + 1, self._next)

    def _next(self) -> None:
        if self._town.now_us < self._until_us:
            self._chance.choices(self._stories, self._weights)[0]()
            self.begin()

    # -- members ---------------------------------------------------------------------------------

    def _crash(self) -> None:
        self._down(self._anybody())

    def _crash_in_the_middle(self) -> None:
        """The next few things it does are its last."""
        node = self._anybody()
        node.doomed = self._chance.randrange(12)

    def _crash_at(self) -> None:
        """Some kind of thing is the last that it does, whenever that comes."""
        node = self._anybody()
        node.doomed_at = self._chance.choice(("log", "cut", "restart", "state", "message"))

    def _kill_leaders(self) -> None:
        """For a while hardly any leader lives long."""
        self._town.leaders_die = self._chance.choice((0.0, 0.5, 0.9))

    def _crash_the_leader(self) -> None:
        for node in self._leaders():
            self._down(node)

    def _crash_many(self) -> None:
        for node in self._town.nodes.values():
            if self._chance.random() < 0.7:
                self._down(node)

    def _down(self, node: Node) -> None:
        node.crash()
        self._later(node.start)

    def _pause(self) -> None:
        self._hold(self._anybody())

    def _pause_the_leader(self) -> None:
        for node in self._leaders():
            self._hold(node)

    def _hold(self, node: Node) -> None:
        self._town.note(f"{node.id} pauses")
        node.pause()
        self._later(node.resume)

    # -- the network -----------------------------------------------------------------------------

    def _split(self) -> None:
        names = list(self._town.nodes)
        self._chance.shuffle(names)
        border = self._chance.randrange(len(names))
        self._part(names[:border], names[border:])

    def _isolate_the_leader(self) -> None:
        for node in self._leaders():
            self._part([node.id], [name for name in self._town.nodes if name != node.id])

    def _part(self, one_side: list[str], other_side: list[str]) -> None:
        self._town.note(f"{one_side} | {other_side}")
        self._cut(between(one_side, other_side))

    def _cut_one_way(self) -> None:
        sender, to = self._anybody().id, self._anybody().id
        self._town.note(f"{sender} does not reach {to}")
        self._cut({(sender, to)})

    def _silence_the_leader(self) -> None:
        """Some, or all, do not hear it, or it does not hear them, or both."""
        for node in self._leaders():
            others = [name for name in self._town.nodes if name != node.id]
            some = self._chance.sample(others, self._chance.randint(0, len(others)))
            links = between([node.id], some)
            links = self._chance.choice((
                links,
                {link for link in links if link[0] == node.id},
                {link for link in links if link[1] == node.id},
            ))  # fmt: skip
            self._town.note(f"cut: {sorted(links)}")
            self._cut(links)

    def _cut(self, links: set[tuple[str, str]]) -> None:
        cut = self._town.network.cut
        cut |= links
        delay_us = self._chance.randint(SECOND_US // 2, 4 * SECOND_US)
        self._town.after(delay_us, cut.difference_update, links)

    def _weather(self) -> None:
        self._town.network.get_rough()

    # -- disks -----------------------------------------------------------------------------------

    def _slow_disk(self) -> None:
        node = self._anybody()
        node.sync_delay_us = self._chance.choice(SLOW_DISKS_US)
        if self._chance.random() < 0.3:
            node.save_delay_us = self._chance.choice(SLOW_DISKS_US[:3])

    def _fail_sync(self) -> None:
        node = self._anybody()
        node.sync_fails = True

    def _fill_disk(self) -> None:
        node = self._anybody()
        self._town.note(f"the disk of {node.id} runs full")
        node.no_room(self._chance.randrange(300))
        self._later(lambda: node.room_again(ROOMY))

    # -- what operators do -----------------------------------------------------------------------

    def _transfer(self) -> None:
        for node in self._leaders():
            to = self._chance.choice(node.core.members.voters)
            self._town.note(f"{node.id} hands over to {to}")
            self._ask(node.transfer, to)

    def _change_members(self) -> None:
        for node in self._leaders():
            try:
                members = self._changed(node.core.members)
            except Refused:
                continue
            self._town.note(f"{node.id} changes to {members}")
            self._ask(node.change, members)

    def _changed(self, members: Members) -> Members:
        nodes = self._town.nodes
        step = self._chance.random()
        if step < 0.1 and len(members.voters) > 2:
            # Two at once, which has to be refused.
            return Members(
                tuple(sorted(self._chance.sample(members.voters, len(members.voters) - 2)))
            )
        if members.learners and step < 0.65:
            return members.with_voter(self._chance.choice(members.learners))
        if len(nodes) < NODES_MAX and step < 0.8:
            name = f"n{len(nodes)}"
            self._town.add_node(name, Members()).start()
            return members.with_learner(name)
        return members.without(self._chance.choice(members.everybody))

    def _trim(self) -> None:
        node = self._anybody()
        if node.is_up:
            node.trim(self._chance.random())

    def _ask(self, request: Callable[..., None], argument: object) -> None:
        try:
            request(argument)
        except Refused as refused:
            self._town.note(f"refused: {refused}")

    # -- who and when ----------------------------------------------------------------------------

    def _anybody(self) -> Node:
        leaders = self._leaders()
        if leaders and self._chance.random() < 0.3:
            return self._chance.choice(leaders)
        return self._chance.choice(list(self._town.nodes.values()))

    def _leaders(self) -> list[Node]:
        return [node for node in self._town.nodes.values() if node.is_up and node.leads]

    def _later(self, action: Callable[[], None]) -> None:
        longest_us = self._chance.choice((300_000, SECOND_US, 4 * SECOND_US))
        self._town.after(self._chance.randint(10_000, longest_us), action)
