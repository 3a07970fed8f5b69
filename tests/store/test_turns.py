"""One dispatch a turn of the event loop, whoever appended in it, or one for many."""

import asyncio

import pytest

from cometmq.protocol.scan import queue_key
from cometmq.store import turns
from cometmq.store.config import FlushMode
from cometmq.store.errors import StoreFailed
from cometmq.store.message_store import MessageStore
from cometmq.store.turns import LATER_BYTES_MAX, LoopTurns
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


# -- what nobody waits for -------------------------------------------------------------------------


class Acknowledging:
    """Appends what is acknowledged already."""

    def __init__(self, store: MessageStore) -> None:
        self.arrivals: list[list[bytes]] = []
        self.turns = LoopTurns(store, self.arrivals.append)
        self._store = store

    def append(self, number: int, *, awaited: bool = False, body_bytes: int = 0) -> None:
        self._store.append(numbered(number, body_bytes))
        self.turns.acknowledged(1, awaited=awaited)


def test_what_nobody_awaits_is_dispatched_a_little_later_and_together(
    open_store: OpenStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    later_s = 0.5  # Long enough for a busy machine to append all of them before.
    monkeypatch.setattr(turns, "LATER_S", later_s)
    store = open_store()

    async def scenario() -> list[list[bytes]]:
        writer = Acknowledging(store)
        for number in range(20):
            writer.append(number)
            await asyncio.sleep(0)
        assert not writer.arrivals
        while not writer.arrivals:
            await asyncio.sleep(later_s / 10)
        return writer.arrivals

    assert len(asyncio.run(scenario())) == 1
    assert served_numbers(store) == list(range(20))


def test_what_is_awaited_takes_along_what_was_put_off(
    open_store: OpenStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(turns, "LATER_S", 0.001)
    store = open_store()

    async def scenario() -> list[list[bytes]]:
        writer = Acknowledging(store)
        writer.append(0)
        writer.append(1, awaited=True)
        await asyncio.sleep(0)
        assert served_numbers(store) == [0, 1]
        await asyncio.sleep(0.01)
        return writer.arrivals

    assert len(asyncio.run(scenario())) == 1


def test_whoever_catches_up_finds_everything(
    open_store: OpenStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(turns, "LATER_S", 60.0)
    store = open_store()

    async def scenario() -> list[list[bytes]]:
        writer = Acknowledging(store)
        for number in range(3):
            writer.append(number)
            writer.turns.catch_up()
            assert served_numbers(store) == list(range(number + 1))
        writer.turns.catch_up()
        return writer.arrivals

    assert len(asyncio.run(scenario())) == 3


def test_a_piece_of_log_that_is_put_off_is_bounded(
    open_store: OpenStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(turns, "LATER_S", 60.0)
    store = open_store()

    async def scenario() -> None:
        writer = Acknowledging(store)
        body_bytes = LATER_BYTES_MAX // 16
        for number in range(64):
            writer.append(number, body_bytes=body_bytes)
            await asyncio.sleep(0)
            assert store.appended.value - store.dispatched.value <= LATER_BYTES_MAX
        assert 3 <= len(writer.arrivals) <= 5

    asyncio.run(scenario())
