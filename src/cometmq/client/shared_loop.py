"""The event loop that all blocking clients of a process share, and a client's way into it.

It runs in a daemon thread from the first call on. A forked process has none of its parent's
threads: it gets a loop of its own, and clients that were in use before are refused there. Clients
that are still open when the process ends are stopped in order, within a bound.
"""

import asyncio
import atexit
import logging
import os
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Generator
from concurrent.futures import CancelledError, Future
from typing import Any, Final, Protocol, TypeVar
from weakref import WeakSet

from cometmq.transport.background import BackgroundLoop

from .errors import NotStarted, WouldBlock

log = logging.getLogger(__name__)
EXIT_TIMEOUT_S: Final = 30.0
"""For all clients that are still open when the process ends, together."""

T = TypeVar("T")


class Client(Protocol):
    async def stop(self) -> None: ...


class SharedLoop:
    def __init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        """Begin anew: what a forked process finds here are the parent's, dead."""
        self._starting = threading.Lock()
        self._loop: BackgroundLoop | None = None
        # The loop keeps those alive that do something, the others need not be stopped.
        self._clients: WeakSet[Client] = WeakSet()

    def enter(self, client: Client) -> BackgroundLoop:
        with self._starting:
            self._clients.add(client)
            if self._loop is None:
                loop = BackgroundLoop("cometmq-client")
                loop.start()
                self._loop = loop
            return self._loop

    def end(self) -> None:
        with self._starting:
            loop, self._loop = self._loop, None
        if loop is not None:
            loop.call(_stop_all(list(self._clients)))
            loop.stop()


async def _stop_all(clients: list[Client]) -> None:
    stopping = [asyncio.create_task(client.stop()) for client in clients]
    if not stopping:
        return
    _, late = await asyncio.wait(stopping, timeout=EXIT_TIMEOUT_S)
    if late:
        log.warning("%d clients did not stop within %g s", len(late), EXIT_TIMEOUT_S)
    for task in stopping:
        if task.done() and not task.cancelled() and task.exception() is not None:
            log.warning("a client did not stop in order: %s", task.exception())


_shared = SharedLoop()
atexit.register(_shared.end)
os.register_at_fork(after_in_child=_shared.forget)


class Home:
    """Where one client lives: in the loop that is shared, from its first call on."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._loop: BackgroundLoop | None = None
        self._process = 0

    def call(self, work: Coroutine[Any, Any, T]) -> T:
        """Do it there and wait for it, however long it takes. Ctrl-C ends both."""
        try:
            loop = self._require_loop()
        except BaseException:
            work.close()
            raise
        return loop.call(work)

    def run(self, function: Callable[[], T]) -> T:
        """Call a plain function there."""

        async def inside() -> T:
            return function()

        return self.call(inside())

    def future(
        self,
        begin: Callable[[], "asyncio.Future[T]"],
        callback: Callable[[Future[T]], object] | None = None,
    ) -> Future[T]:
        """What begins there, as a future for any thread. The callback is called there, too."""
        given: Future[T] = Future()
        given.set_running_or_notify_cancel()  # What is under way cannot be taken back.

        def inside() -> None:
            begin().add_done_callback(lambda pending: _hand_over(pending, given))
            if callback is not None:
                given.add_done_callback(callback)

        self.run(inside)
        return given

    def iterate(self, source: AsyncIterator[T]) -> Generator[T, None, None]:
        """What comes there, one by one, each when it is asked for."""

        async def step() -> tuple[T, ...]:
            async for item in source:
                return (item,)
            return ()

        while found := self.call(step()):
            yield found[0]

    def _require_loop(self) -> BackgroundLoop:
        if _runs_a_loop():
            raise WouldBlock(
                "a blocking call inside of an event loop would stop all that runs in it: use "
                "cometmq.client itself there, with await"
            )
        if self._loop is None:
            self._loop, self._process = _shared.enter(self._client), os.getpid()
        elif self._process != os.getpid():
            raise NotStarted("this client was in use before the process forked: make a new one")
        return self._loop


def _runs_a_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


def _hand_over(pending: "asyncio.Future[T]", given: Future[T]) -> None:
    if pending.cancelled():
        given.set_exception(CancelledError())
    elif (error := pending.exception()) is not None:
        given.set_exception(error)
    else:
        given.set_result(pending.result())
