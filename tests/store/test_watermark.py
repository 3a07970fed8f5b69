"""Watermarks wake exactly those whose offset they have passed, in threads and in tasks."""

import asyncio
import threading

import pytest

from cometmq.store import watermark
from cometmq.store.errors import StoreFailed, WaitersFull, WaitTimeout
from cometmq.store.watermark import Watermark


def test_it_only_grows() -> None:
    mark = Watermark("m")
    mark.advance(10)
    mark.advance(5)
    assert mark.value == 10


def test_a_thread_waits_until_the_offset_is_reached() -> None:
    mark = Watermark("m")
    threading.Timer(0.05, mark.advance, (7,)).start()
    mark.wait(7, 5000)
    assert mark.value == 7


def test_a_thread_that_waits_too_long_is_told_for_what() -> None:
    with pytest.raises(WaitTimeout, match="flushed is at 0 and did not reach 9 in time"):
        Watermark("flushed").wait(9, 10)


def test_tasks_are_woken_in_one_go_by_another_thread() -> None:
    async def scenario() -> list[int]:
        mark = Watermark("m")
        woken: list[int] = []

        async def wait(offset: int) -> None:
            await mark.reached(offset, 5000)
            woken.append(offset)

        tasks = [asyncio.create_task(wait(offset)) for offset in (30, 10, 20, 40)]
        await asyncio.sleep(0)
        threading.Thread(target=mark.advance, args=(30,)).start()
        await asyncio.gather(*tasks[:3])
        assert not tasks[3].done()
        mark.advance(40)
        await tasks[3]
        return woken

    assert asyncio.run(scenario()) == [10, 20, 30, 40]


def test_an_offset_already_passed_needs_no_wait() -> None:
    async def scenario() -> None:
        mark = Watermark("m", 5)
        await mark.reached(5, 0)
        assert not mark.awaited

    asyncio.run(scenario())


def test_tasks_time_out_each_at_its_own_time() -> None:
    async def scenario() -> None:
        mark = Watermark("m")
        late = asyncio.ensure_future(mark.reached(10, 200))
        with pytest.raises(WaitTimeout):
            await mark.reached(10, 20)
        assert not late.done()
        with pytest.raises(WaitTimeout):
            await late
        assert not mark.awaited

    asyncio.run(scenario())


def test_a_cancelled_task_leaves_the_others_alone() -> None:
    async def scenario() -> None:
        mark = Watermark("m")
        gone = asyncio.ensure_future(mark.reached(10, 5000))
        kept = asyncio.ensure_future(mark.reached(10, 5000))
        gone.cancel()
        await asyncio.sleep(0)
        mark.advance(10)
        await kept
        assert gone.cancelled()

    asyncio.run(scenario())


def test_a_failure_reaches_all_who_wait_now_or_later() -> None:
    async def scenario() -> None:
        mark = Watermark("m")
        waiting = asyncio.ensure_future(mark.reached(10, 5000))
        threading.Thread(target=mark.fail, args=(StoreFailed("broken"),)).start()
        with pytest.raises(StoreFailed, match="broken"):
            await waiting
        with pytest.raises(StoreFailed, match="broken"):
            mark.wait(10, 10)

    asyncio.run(scenario())


def test_a_loop_that_has_ended_leaves_nothing_behind() -> None:
    mark = Watermark("m")

    async def give_up() -> None:
        mark.reached(10, 5000)

    async def wait() -> None:
        mark.advance(5)
        asyncio.get_running_loop().call_soon(mark.advance, 10)
        await mark.reached(10, 5000)

    asyncio.run(give_up())
    asyncio.run(wait())
    assert not mark.awaited


def test_waiters_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watermark, "WAITERS_MAX", 2)

    async def scenario() -> None:
        mark = Watermark("m")
        waiting = [asyncio.ensure_future(mark.reached(1, 5000)) for _ in range(2)]
        with pytest.raises(WaitersFull):
            await mark.reached(1, 5000)
        mark.advance(1)
        await asyncio.gather(*waiting)

    asyncio.run(scenario())


def test_no_wake_up_is_lost_under_load() -> None:
    """Another thread advances all the time while tasks keep coming."""

    async def scenario() -> None:
        mark = Watermark("m")
        stop = threading.Event()

        def advance() -> None:
            while not stop.is_set():
                mark.advance(mark.value + 1)

        thread = threading.Thread(target=advance)
        thread.start()
        try:

            async def wait_often() -> None:
                for _ in range(300):
                    await mark.reached(mark.value + 3, 10_000)

            await asyncio.gather(*(wait_often() for _ in range(8)))
            assert not mark.awaited
        finally:
            stop.set()
            thread.join()

    asyncio.run(scenario())
