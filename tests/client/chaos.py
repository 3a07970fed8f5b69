"""Random faults at two brokers and their NameServer, several at once, as a seed decides.

The seed decides which faults there are, when and for how long; what they hit is a matter of
timing. Everything is whole again when `wreak` returns.
"""

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import Final

from cometmq.client.cluster import Cluster
from cometmq.client.errors import ClientError
from cometmq.testing import Direction, EmbeddedBroker, FaultProxy

from .member import Member
from .workload import CONCURRENT, ORDERLY, Workload

BROKERS: Final = 2
FAULTS: Final = 6
LONGEST_S: Final = 3.0
STOP_MAX_S: Final = 30.0
AT_ONCE_MAX: Final = 3
NEVER: Final = 2**62
"""So many bytes do not pass."""


class Chaos:
    def __init__(self, broker: EmbeddedBroker, cluster: Cluster, work: Workload, seed: int) -> None:
        self.schedule: list[str] = []
        """What was done, for whoever has to find out what went wrong."""
        self._broker = broker
        self._cluster = cluster
        self._work = work
        self._chance = random.Random(seed)
        self._down: set[int] = set()
        self._namesrv_lock = asyncio.Lock()
        self._faults: list[Callable[[random.Random], Awaitable[None]]] = [
            self._restart_broker, self._restart_broker, self._restart_namesrv, self._cut,
            self._cut_in_frames, self._stall, self._drop, self._silence, self._delay,
            self._refuse,
            self._kill_member, self._join_and_leave, self._join_and_leave,
        ]  # fmt: skip

    async def wreak(self) -> None:
        left = FAULTS
        while left:
            count = min(self._chance.randint(1, AT_ONCE_MAX), left)
            left -= count
            chosen = [self._chance.choice(self._faults) for _ in range(count)]
            # Each has chance of its own: the schedule does not depend on how they interleave.
            seeds = [random.Random(self._chance.random()) for _ in chosen]
            await asyncio.gather(*(fault(own) for fault, own in zip(chosen, seeds, strict=True)))
            await asyncio.sleep(self._chance.uniform(0.0, 1.0))

    def _note(self, what: str) -> None:
        self.schedule.append(what)

    def _proxy(self, chance: random.Random) -> FaultProxy:
        number = chance.randrange(BROKERS + 1)
        if number == BROKERS:
            return self._broker.namesrv_proxy
        return self._broker.proxy(number)

    # -- servers ---------------------------------------------------------------------------------

    async def _restart_broker(self, chance: random.Random) -> None:
        number, abrupt = chance.randrange(BROKERS), chance.random() < 0.7
        seconds = chance.uniform(0.0, LONGEST_S)
        if number in self._down:
            return
        self._down.add(number)
        self._note(f"broker {number} is down for {seconds:.2f} s, abruptly: {abrupt}")
        await self._broker.stop_broker(number, abrupt=abrupt)
        await self._work.lose_locks()
        await asyncio.sleep(seconds)
        await self._broker.start_broker(number)
        self._down.discard(number)

    async def _restart_namesrv(self, chance: random.Random) -> None:
        seconds = chance.uniform(0.0, LONGEST_S)
        async with self._namesrv_lock:
            self._note(f"the NameServer is down for {seconds:.2f} s")
            await self._broker.stop_namesrv()
            await asyncio.sleep(seconds)
            await self._broker.start_namesrv()

    # -- connections -----------------------------------------------------------------------------

    async def _cut(self, chance: random.Random) -> None:
        proxy, count = self._proxy(chance), chance.randint(1, 5)
        self._note(f"{proxy.target} is cut {count} times")
        for _ in range(count):
            proxy.cut()
            await asyncio.sleep(chance.uniform(0.0, 0.5))

    async def _cut_in_frames(self, chance: random.Random) -> None:
        proxy, direction = self._proxy(chance), chance.choice(list(Direction))
        self._note(f"{proxy.target} is cut in frames {direction.value}")
        for _ in range(3):
            proxy.cut_after(chance.randint(1, 5000), direction)
            await asyncio.sleep(chance.uniform(0.0, 0.5))
        proxy.cut_after(NEVER, direction)

    async def _stall(self, chance: random.Random) -> None:
        proxy = self._proxy(chance)
        directions = chance.choice([(), (Direction.TO_CLIENT,), (Direction.TO_SERVER,)])
        seconds = chance.uniform(0.0, LONGEST_S)
        self._note(f"{proxy.target} stalls for {seconds:.2f} s: {directions or 'all'}")
        proxy.stall(*directions)
        await asyncio.sleep(seconds)
        proxy.resume()

    async def _drop(self, chance: random.Random) -> None:
        proxy, direction = self._proxy(chance), chance.choice(list(Direction))
        seconds = chance.uniform(0.0, LONGEST_S)
        self._note(f"{proxy.target} loses all {direction.value} for {seconds:.2f} s")
        proxy.drop(direction)
        await asyncio.sleep(seconds)
        proxy.restore()

    async def _silence(self, chance: random.Random) -> None:
        proxy = self._proxy(chance)
        self._note(f"{proxy.target} falls silent")
        proxy.silence()

    async def _delay(self, chance: random.Random) -> None:
        proxy, late_s = self._proxy(chance), chance.uniform(0.0, 0.8)
        self._note(f"{proxy.target} is late by {late_s:.2f} s")
        proxy.delay(late_s)
        await asyncio.sleep(chance.uniform(0.0, LONGEST_S))
        proxy.delay(0.0)

    async def _refuse(self, chance: random.Random) -> None:
        proxy, seconds = self._proxy(chance), chance.uniform(0.0, LONGEST_S)
        self._note(f"{proxy.target} refuses for {seconds:.2f} s")
        proxy.refuse()
        proxy.cut()
        await asyncio.sleep(seconds)
        proxy.accept()

    # -- members ---------------------------------------------------------------------------------

    async def _kill_member(self, chance: random.Random) -> None:
        """It may be killed before it is one."""
        work, seconds = self._work, chance.uniform(0.3, LONGEST_S)
        self._note(f"a member is killed after {seconds:.2f} s")
        group = work.group(CONCURRENT)
        async with Member.running(self._cluster, work.topic, CONCURRENT, work.ledger, group):
            await asyncio.sleep(seconds)

    async def _join_and_leave(self, chance: random.Random) -> None:
        """Queues go to and fro while connections fail."""
        work, seconds = self._work, chance.uniform(0.0, LONGEST_S)
        kind = chance.choice([CONCURRENT, ORDERLY])
        self._note(f"a member of {kind} comes for {seconds:.2f} s")
        name = f"guest {len(self.schedule)}"
        try:
            async with asyncio.timeout(STOP_MAX_S), work.push_consumer(kind, name):
                await asyncio.sleep(seconds)
        except ClientError as error:
            self._note(f"{name} could not start: {error}")
