"""A TCP proxy on this machine that fails on purpose: cuts, stalls, delays, refuses and loses.

It knows nothing of what goes through it, so it stands in front of any server, also a real RocketMQ.
Faults hold for all connections, those there are and those to come, until they are taken back. Every
operation may be called from any thread.
"""

import asyncio
import logging
import socket
from types import TracebackType
from typing import Final, Self

from cometmq.transport.dial import split_address

from .link import Direction, End, Faults, Link, Traffic
from .own_loop import in_own_loop
from .ports import LOOPBACK, ReservedPort, bound_socket

log = logging.getLogger(__name__)
LINKS_MAX: Final = 1000
BACKLOG: Final = 128
CONNECT_TIMEOUT_S: Final = 3.0
STOP_TIMEOUT_S: Final = 10.0
_STOP_POLL_S: Final = 0.001


class FaultProxy:
    """Stands in front of a server until something is to go wrong.

    async with FaultProxy("127.0.0.1:10911") as proxy:
        connection = await connect(proxy.address)
        proxy.cut()
    """

    def __init__(self, target: str) -> None:
        split_address(target)
        self.target = target
        self.traffic = Traffic()
        self._faults = Faults()
        self._links: set[Link] = set()
        self._joining: set[asyncio.Task[None]] = set()
        self._port: ReservedPort | None = None
        self._listener: socket.socket | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    async def __aenter__(self) -> Self:
        self.start()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.stop()

    # -- life ------------------------------------------------------------------------------------

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        if self._loop is None:
            raise RuntimeError(f"the proxy of {self.target} is not running: use `async with`")
        return self._loop

    @property
    def address(self) -> str:
        """Where clients connect instead of the target; it stays the same while they are refused."""
        if self._port is None:
            raise RuntimeError(f"the proxy of {self.target} is not running: use `async with`")
        return f"{LOOPBACK}:{self._port.number}"

    @property
    def connections(self) -> int:
        """How many there are just now."""
        return len(self._links)

    def start(self) -> None:
        """Take connections, in the loop that runs."""
        self._loop = asyncio.get_running_loop()
        self._port = ReservedPort()
        self.accept()

    async def stop(self) -> None:
        """Cut everything and let go of the port."""
        self.refuse()
        for link in list(self._links):
            link.cut()
        async with asyncio.timeout(STOP_TIMEOUT_S):
            await asyncio.gather(*self._joining)
            while self._links:
                await asyncio.sleep(_STOP_POLL_S)
        if self._port is not None:
            self._port.release()
        self._port = self._loop = None

    # -- faults ----------------------------------------------------------------------------------

    @in_own_loop
    def cut(self) -> None:
        """Reset all connections there are."""
        self.traffic.cuts += 1
        for link in list(self._links):
            link.cut()

    @in_own_loop
    def cut_after(self, count: int, direction: Direction = Direction.TO_CLIENT) -> None:
        """Let so many more bytes pass in a direction, over all connections, then cut them all.
        Who was to get the rest sees its connection end behind exactly these."""
        self._faults.bytes_left[direction] = count

    @in_own_loop
    def stall(self, *directions: Direction) -> None:
        """Take connections and hold everything; of one direction if it is named."""
        self._faults.stalled.update(directions or Direction)
        self._pump()

    @in_own_loop
    def resume(self) -> None:
        """Let everything pass that was held."""
        self._faults.stalled.clear()
        self._pump()

    @in_own_loop
    def delay(self, seconds: float) -> None:
        """Let everything that comes from now on arrive so much later; 0 takes that back."""
        self._faults.delay_s = seconds

    @in_own_loop
    def drop(self, *directions: Direction) -> None:
        """Lose everything, also the news that a connection ended; of one direction if it is
        named. The other end sees neither."""
        self._faults.dropped.update(directions or Direction)

    @in_own_loop
    def restore(self) -> None:
        """Lose nothing more. Connections that have lost something are reset: a stream with a hole
        in it is none."""
        self._faults.dropped.clear()
        for link in list(self._links):
            if link.has_hole:
                link.cut()

    @in_own_loop
    def silence(self) -> None:
        """Let the connections there are go silent for good, as if a firewall had forgotten them:
        neither end hears from the other again, nor of its end. New ones are fine."""
        for link in list(self._links):
            link.silence()

    @in_own_loop
    def refuse(self) -> None:
        """Let nobody connect; those who are stay."""
        if self._listener is not None:
            self.loop.remove_reader(self._listener)
            self._listener.close()
            self._listener = None

    @in_own_loop
    def accept(self) -> None:
        """Let clients connect again."""
        if self._listener is None and self._port is not None:
            self._listener = bound_socket(self._port.number)
            self._listener.setblocking(False)
            self._listener.listen(BACKLOG)
            self.loop.add_reader(self._listener, self._take)

    # -- connections -----------------------------------------------------------------------------

    def _take(self) -> None:
        assert self._listener is not None
        try:
            client, _ = self._listener.accept()
        except OSError as error:  # It went away meanwhile.
            log.info("a client of the proxy of %s was lost: %s", self.target, error)
            return
        if len(self._links) >= LINKS_MAX:
            log.warning("proxy of %s: %d connections, no more", self.target, LINKS_MAX)
            client.close()
            return
        self.traffic.connections += 1
        link = Link(
            self._faults,
            self.traffic,
            on_last_byte=self._last_byte_passed,
            on_over=self._links.discard,
        )
        self._links.add(link)
        task = self.loop.create_task(self._join(link, client))
        self._joining.add(task)
        task.add_done_callback(self._joining.discard)

    async def _join(self, link: Link, client: socket.socket) -> None:
        loop, (host, port) = self.loop, split_address(self.target)
        client.setblocking(False)
        try:
            await loop.connect_accepted_socket(lambda: link.client, client)
            async with asyncio.timeout(CONNECT_TIMEOUT_S):
                await loop.create_connection(lambda: link.server, host, port)
        except (OSError, TimeoutError) as error:
            log.info("the proxy does not reach %s: %s", self.target, error)
            link.cut()
        finally:
            link.joined()

    def _last_byte_passed(self, passed: Link, end: End) -> None:
        self.traffic.cuts += 1
        for link in list(self._links):
            if link is passed:
                link.cut_behind(end)
            else:
                link.cut()

    def _pump(self) -> None:
        for link in list(self._links):
            link.pump()
