"""Threads for handlers that are plain functions.

A thread that has done its work takes the next piece by itself, and all results that came together
go to the event loop together: a thread pool's two hand-overs a call cost more than most handlers.
The threads do not keep a process from ending: a message in hand then is not consumed, and comes
again.
"""

import asyncio
import queue
import threading
from collections import deque
from collections.abc import Callable
from typing import Any

_Done = tuple["asyncio.Future[Any]", Any, BaseException | None]


class Threads:
    """Made inside the loop that it works for. Threads are started as they are needed."""

    def __init__(self, function: Callable[[Any], Any], count_max: int) -> None:
        self._function = function
        self._count_max = count_max
        self._loop = asyncio.get_running_loop()
        self._work: queue.SimpleQueue[tuple[asyncio.Future[Any], Any] | None] = queue.SimpleQueue()
        self._open = 0
        self._done: deque[_Done] = deque()
        self._loop_knows = False
        self._threads: list[threading.Thread] = []

    def call(self, argument: Any) -> "asyncio.Future[Any]":
        """What the function makes of it, in a thread."""
        future: asyncio.Future[Any] = self._loop.create_future()
        self._open += 1
        if self._open > len(self._threads) < self._count_max:
            self._start_one()
        self._work.put((future, argument))
        return future

    def stop(self) -> None:
        """No thread takes anything new; one that is at work ends after it."""
        for _ in self._threads:
            self._work.put(None)

    def _start_one(self) -> None:
        name = f"cometmq-handler-{len(self._threads)}"
        thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._threads.append(thread)
        thread.start()

    # -- in the threads --------------------------------------------------------------------------

    def _run(self) -> None:
        while (work := self._work.get()) is not None:
            future, argument = work
            result, error = None, None
            try:
                result = self._function(argument)
            except BaseException as raised:  # noqa: BLE001 - the loop's side decides about it
                error = raised
            self._done.append((future, result, error))
            if not self._loop_knows:
                self._loop_knows = True
                self._tell_loop()

    def _tell_loop(self) -> None:
        try:
            self._loop.call_soon_threadsafe(self._settle)
        except RuntimeError:
            self._work.put(None)  # The loop is closed: nobody waits any more.

    # -- in the loop -----------------------------------------------------------------------------

    def _settle(self) -> None:
        self._loop_knows = False  # First: what comes from here on is told again.
        while self._done:
            future, result, error = self._done.popleft()
            self._open -= 1
            if future.done():
                continue  # Whoever waited has given up.
            if error is None:
                future.set_result(result)
            elif isinstance(error, StopIteration):
                # A future that carries one would never end.
                future.set_exception(RuntimeError("the handler raised StopIteration"))
            else:
                future.set_exception(error)
