"""An event loop in a thread of its own, for code that runs in none and waits for its answers.

What belongs to the loop is touched in its thread only; calls bring work there and wait for it. Who
stops waiting, by an interrupt or because the time is up, cancels what it waited for.
"""

import asyncio
import threading
from collections.abc import Coroutine
from typing import Any, Final, TypeVar

from .loop import run

BEGIN_TIMEOUT_S: Final = 60.0
END_TIMEOUT_S: Final = 60.0
"""For the thread to end once nothing more is to be done."""

T = TypeVar("T")


class BackgroundLoop:
    """Runs from `start` to `stop`."""

    def __init__(self, name: str, *, call_timeout_s: float | None = None) -> None:
        """Without `call_timeout_s` a call takes as long as its work does."""
        self._call_timeout_s = call_timeout_s
        self._loop: asyncio.AbstractEventLoop | None = None
        self._begun = threading.Event()
        self._ending: asyncio.Event | None = None
        # Who never stops it must not keep the process from ending.
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        self._thread.start()
        if not self._begun.wait(BEGIN_TIMEOUT_S):
            raise TimeoutError(f"no event loop within {BEGIN_TIMEOUT_S:g} s")

    @property
    def is_running(self) -> bool:
        return self._loop is not None

    def call(self, work: Coroutine[Any, Any, T]) -> T:
        """Do it in the loop and wait for it; what it raises is raised here."""
        if self._loop is None:
            work.close()
            raise RuntimeError(f"{self._thread.name}: its event loop has ended")
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result(self._call_timeout_s)
        finally:
            future.cancel()

    def stop(self) -> None:
        self.call(self._end())
        self._thread.join(END_TIMEOUT_S)

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
