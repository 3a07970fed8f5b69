"""Event loops that a test's thread works with from outside.

What belongs to a loop is touched in that loop only; `in_own_loop` brings a call there from any
thread, and `BackgroundLoop` is a loop in a thread of its own. Every wait has an end.
"""

import asyncio
import functools
import threading
from collections.abc import Callable, Coroutine
from typing import Any, Concatenate, Final, ParamSpec, Protocol, TypeVar

from cometmq.transport.loop import run

CALL_TIMEOUT_S: Final = 60.0
"""No call into a loop takes longer unless that loop is stuck."""

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")


class LivesInLoop(Protocol):
    @property
    def loop(self) -> asyncio.AbstractEventLoop: ...


Owner = TypeVar("Owner", bound=LivesInLoop)


def in_own_loop(
    method: Callable[Concatenate[Owner, Parameters], Result],
) -> Callable[Concatenate[Owner, Parameters], Result]:
    """Lets a method be called from any thread: it runs in its object's own loop."""

    @functools.wraps(method)
    def from_anywhere(
        owner: Owner, /, *args: Parameters.args, **named: Parameters.kwargs
    ) -> Result:
        if _running_loop() is owner.loop:
            return method(owner, *args, **named)

        async def inside() -> Result:
            return method(owner, *args, **named)

        return asyncio.run_coroutine_threadsafe(inside(), owner.loop).result(CALL_TIMEOUT_S)

    return from_anywhere


def _running_loop() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None


class BackgroundLoop:
    """An event loop in its own thread, from `start` to `stop`."""

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        self._begun = threading.Event()
        self._ending: asyncio.Event | None = None
        # A test that never leaves must not keep its process from ending.
        self._thread = threading.Thread(target=self._run, name="cometmq-testing", daemon=True)

    def start(self) -> None:
        self._thread.start()
        if not self._begun.wait(CALL_TIMEOUT_S):
            raise TimeoutError(f"no event loop within {CALL_TIMEOUT_S:g} s")

    def call(self, work: Coroutine[Any, Any, Result]) -> Result:
        """Do it in the loop and wait for it; what it raises is raised here."""
        if self._loop is None:
            work.close()
            raise RuntimeError("the broker has ended")
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(CALL_TIMEOUT_S)

    def stop(self) -> None:
        self.call(self._end())
        self._thread.join(CALL_TIMEOUT_S)

    def _run(self) -> None:
        run(self._until_end())

    async def _until_end(self) -> None:
        self._ending = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self._begun.set()
        await self._ending.wait()
        self._loop = None

    async def _end(self) -> None:
        assert self._ending is not None
        self._ending.set()
