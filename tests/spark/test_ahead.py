"""Reading ahead: whatever answers bring, each message comes once and in order."""

import asyncio
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cometmq.spark.topic.ahead import MESSAGES_MAX, PULLS_MAX, Ahead

Answer = tuple[list[int], int]
"""Offsets, and where to go on."""


class Queue:
    """Answers pulls as brokers do: with limits of its own, and now and then not at all."""

    def __init__(self, loop: asyncio.AbstractEventLoop, seed: int, *, matching: float) -> None:
        self._loop = loop
        self._chance = random.Random(seed)
        self._matching = matching
        self._limit = self._chance.choice([1, 8, 32, 1024, 5000])
        self.asked: list[tuple[int, int]] = []

    def ask(self, offset: int, count: int) -> "asyncio.Future[Answer]":
        self.asked.append((offset, count))
        if self._chance.random() < 0.05:
            raise ConnectionError("closed")
        future: asyncio.Future[Answer] = self._loop.create_future()
        if self._chance.random() < 0.05:
            future.set_exception(ConnectionError("lost"))
        else:
            future.set_result(self._answer(offset, count))
        return future

    def _answer(self, offset: int, count: int) -> Answer:
        if self._chance.random() < 0.02:
            self._limit = self._chance.choice([1, 8, 32, 1024])
        found: list[int] = []
        at = offset
        while len(found) < min(count, self._limit) and at < offset + 6000:
            if self.matches(at):
                found.append(at)
            at += 1
        return found, at

    def matches(self, offset: int) -> bool:
        return random.Random(offset).random() < self._matching


async def read_all(ahead: Ahead[Answer]) -> list[int]:
    read: list[int] = []
    while not ahead.is_done:
        try:
            piece = ahead.current()
            found, reached = await piece.answer
        except ConnectionError:
            ahead.forget()
            continue
        read += [at for at in found if at < ahead.limit]
        ahead.took(reached, 300 * len(found))
    for piece in ahead._pieces:
        piece.answer.cancel()
    return read


@settings(deadline=None)
@given(
    st.integers(0, 10_000),
    st.integers(1, 20_000),
    st.integers(0, 2**32),
    st.sampled_from([1.0, 0.5, 0.01]),
)
def test_every_message_comes_once_and_in_order(
    start: int, size: int, seed: int, matching: float
) -> None:
    async def read() -> None:
        queue = Queue(asyncio.get_running_loop(), seed, matching=matching)
        read = await read_all(Ahead(start, start + size, queue.ask))
        assert read == [at for at in range(start, start + size) if queue.matches(at)]
        assert all(1 <= count <= MESSAGES_MAX for _, count in queue.asked)

    asyncio.run(read())


def test_several_pulls_are_under_way_once_it_is_known_what_one_brings() -> None:
    async def read() -> None:
        futures: list[asyncio.Future[Answer]] = []
        asked: list[tuple[int, int]] = []

        def ask(offset: int, count: int) -> asyncio.Future[Answer]:
            asked.append((offset, count))
            futures.append(asyncio.get_running_loop().create_future())
            return futures[-1]

        ahead: Ahead[Answer] = Ahead(0, 100_000, ask)
        ahead.current()
        assert asked == [(0, MESSAGES_MAX)]
        ahead.took(32, 10_000)
        ahead.current()
        assert asked[1:] == [(32 * number, 32) for number in range(1, PULLS_MAX + 1)]
        ahead.forget()
        assert all(future.cancelled() for future in futures[1:])

    asyncio.run(read())


@pytest.mark.parametrize("forgets", [True, False])
def test_the_rest_of_a_piece_is_asked_for_again_when_that_fails(forgets: bool) -> None:
    async def read() -> None:
        asked: list[int] = []
        is_open = True

        def ask(offset: int, _: int) -> asyncio.Future[Answer]:
            if not is_open:
                raise ConnectionError("closed")
            asked.append(offset)
            return asyncio.get_running_loop().create_future()

        ahead: Ahead[Answer] = Ahead(0, 1000, ask)
        ahead.current()
        ahead.took(100, 10_000)
        assert ahead.current().start == 100
        assert asked == list(range(0, 1000, 100))
        is_open = False
        ahead.took(140, 10_000)
        with pytest.raises(ConnectionError):
            ahead.current()
        if forgets:
            ahead.forget()
        is_open = True
        assert ahead.current().start == ahead.position == 140
        assert ahead.limit == (1000 if forgets else 200)

    asyncio.run(read())


def test_large_answers_keep_few_pulls_under_way() -> None:
    async def read() -> None:
        asked: list[int] = []

        def ask(offset: int, _: int) -> asyncio.Future[Answer]:
            asked.append(offset)
            return asyncio.get_running_loop().create_future()

        ahead: Ahead[Answer] = Ahead(0, 1000, ask)
        ahead.current()
        ahead.took(1, 4 << 20)
        ahead.current()
        assert asked == [0, 1, 2]

    asyncio.run(read())
