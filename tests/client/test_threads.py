"""Threads for plain handlers: bounded in number, and every call has its end."""

import asyncio
import threading
import time
from typing import Any

import pytest

from cometmq.client.consumer.threads import Threads

WAIT_S = 10.0


async def test_a_result_comes_back_from_another_thread() -> None:
    threads = Threads(lambda number: (number * 2, threading.current_thread().name), 3)
    results = await asyncio.gather(*(threads.call(number) for number in range(100)))
    threads.stop()

    assert [result for result, _ in results] == [number * 2 for number in range(100)]
    assert {name for _, name in results} <= {f"cometmq-handler-{number}" for number in range(3)}


async def test_never_more_run_at_once_than_allowed_and_as_many_as_are_needed() -> None:
    running, most = 0, 0
    lock, all_here = threading.Lock(), threading.Barrier(4)

    def meet(_: Any) -> None:
        nonlocal running, most
        with lock:
            running += 1
            most = max(most, running)
        all_here.wait(WAIT_S)  # Four must be here at the same time for anyone to go on.
        with lock:
            running -= 1

    threads = Threads(meet, 4)
    await asyncio.gather(*(threads.call(None) for _ in range(12)))
    threads.stop()

    assert most == 4


async def test_an_idle_thread_is_used_again_before_another_is_started() -> None:
    threads = Threads(lambda _: threading.get_ident(), 8)
    idents = {await threads.call(None) for _ in range(20)}
    threads.stop()

    assert len(idents) == 1


@pytest.mark.parametrize("raised", [ValueError("no"), KeyboardInterrupt(), StopIteration()])
async def test_what_the_function_raises_is_raised_to_the_caller(raised: BaseException) -> None:
    def fail(_: Any) -> None:
        raise raised

    threads = Threads(fail, 1)
    outcome = (await asyncio.gather(threads.call(None), return_exceptions=True))[0]
    threads.stop()

    expected = RuntimeError if isinstance(raised, StopIteration) else type(raised)
    assert isinstance(outcome, expected)


async def test_a_caller_that_gave_up_does_not_keep_others_from_their_results() -> None:
    free = threading.Event()
    threads = Threads(lambda wait: free.wait(WAIT_S) if wait else "quick", 2)
    slow = threads.call(True)
    slow.cancel()
    assert await threads.call(False) == "quick"
    free.set()
    assert await threads.call(False) == "quick"
    threads.stop()


async def test_threads_end_after_stop() -> None:
    threads = Threads(lambda _: threading.current_thread(), 2)
    thread = await threads.call(None)
    threads.stop()
    await asyncio.to_thread(thread.join, WAIT_S)

    assert not thread.is_alive()


def test_a_thread_that_ends_its_work_after_the_loop_is_closed_ends_quietly() -> None:
    free = threading.Event()
    seen: list[threading.Thread] = []

    def wait(_: Any) -> None:
        seen.append(threading.current_thread())
        free.wait(WAIT_S)

    async def leave_it() -> None:
        Threads(wait, 1).call(None).cancel()
        while not seen:
            time.sleep(0.001)

    asyncio.run(leave_it())
    free.set()
    seen[0].join(WAIT_S)

    assert not seen[0].is_alive()
