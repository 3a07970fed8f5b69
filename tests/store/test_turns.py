"""One dispatch a turn of the event loop, whoever appended in it."""

import asyncio

from cometmq.protocol.scan import queue_key
from cometmq.store.config import FlushMode
from cometmq.store.errors import StoreFailed
from cometmq.store.turns import LoopTurns
from cometmq.testing.disk import FailingDisk

from .conftest import OpenStore
from .stores import numbered, served_numbers


def test_all_appends_of_a_turn_share_a_dispatch(open_store: OpenStore) -> None:
    store = open_store(flush=FlushMode.SYNC)
    arrivals: list[list[bytes]] = []

    async def scenario() -> None:
        turns = LoopTurns(store, arrivals.append)

        async def write(number: int) -> None:
            placed = store.append(numbered(number))
            await turns.settled()
            assert store.flushed.value >= placed.end

        await asyncio.gather(*(write(number) for number in range(20)))

    asyncio.run(scenario())
    assert len(arrivals) == 1
    assert queue_key("orders", 0) in arrivals[0]
    assert served_numbers(store) == list(range(20))


def test_a_failed_sync_reaches_all_who_appended_in_the_turn(open_store: OpenStore) -> None:
    disk = FailingDisk()
    store = open_store(flush=FlushMode.SYNC, disk=disk)

    async def scenario() -> list[BaseException | None]:
        turns = LoopTurns(store)

        async def write(number: int) -> None:
            store.append(numbered(number))
            await turns.settled()

        disk.failing = True
        return await asyncio.gather(*map(write, range(5)), return_exceptions=True)

    assert [type(outcome) for outcome in asyncio.run(scenario())] == [StoreFailed] * 5


def test_each_turn_has_its_own(open_store: OpenStore) -> None:
    store = open_store()
    arrivals: list[list[bytes]] = []

    async def scenario() -> None:
        turns = LoopTurns(store, arrivals.append)
        for number in range(3):
            store.append(numbered(number))
            await turns.settled()
            await asyncio.sleep(0)

    asyncio.run(scenario())
    assert len(arrivals) == 3
