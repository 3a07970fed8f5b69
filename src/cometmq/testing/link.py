"""One connection through a fault proxy: two ends, and what goes wrong between them.

What one end hears is held until it is due and its way is free, and goes to the other end in order.
What is held is bounded: with that much, an end is not listened to. A stream that has lost bytes is
never put together again.
"""

import asyncio
import dataclasses
import enum
import socket
import struct
from collections import deque
from collections.abc import Callable
from typing import Final, cast

HELD_BYTES_MAX: Final = 1024**2
"""Of one direction of one link; what a single read brings comes on top."""
_RESET_ON_CLOSE: Final = struct.pack("ii", 1, 0)


class Direction(enum.Enum):
    TO_SERVER = "to the server"
    TO_CLIENT = "to the client"


@dataclasses.dataclass
class Faults:
    """What is wrong just now, for all links of a proxy."""

    stalled: set[Direction] = dataclasses.field(default_factory=set)
    dropped: set[Direction] = dataclasses.field(default_factory=set)
    delay_s: float = 0.0
    bytes_left: dict[Direction, int] = dataclasses.field(default_factory=dict)
    """How many more may pass before all links are cut."""


@dataclasses.dataclass
class Traffic:
    """What has gone through a proxy so far."""

    connections: int = 0
    bytes_to_server: int = 0
    bytes_to_client: int = 0
    bytes_dropped: int = 0
    cuts: int = 0
    """How often links were cut on purpose."""

    def count(self, direction: Direction, size: int) -> None:
        if direction is Direction.TO_SERVER:
            self.bytes_to_server += size
        else:
            self.bytes_to_client += size


class Link:
    def __init__(
        self,
        faults: Faults,
        traffic: Traffic,
        *,
        on_last_byte: "Callable[[Link, End], None]",
        on_over: "Callable[[Link], None]",
    ) -> None:
        """`on_last_byte` is told when an end heard the last byte that was to pass."""
        self.faults = faults
        self.traffic = traffic
        self.on_last_byte = on_last_byte
        self._on_over = on_over
        self.client = End(self, Direction.TO_SERVER)
        self.server = End(self, Direction.TO_CLIENT)
        self.is_cut = False
        self.has_hole = False
        """Whether bytes, or news of its end, were dropped."""
        self.is_silent = False
        """Whether it drops everything from now on."""
        self._is_joining = True

    def other(self, end: "End") -> "End":
        return self.server if end is self.client else self.client

    def joined(self) -> None:
        """Both ends are there, or one will never be."""
        self._is_joining = False
        self.ended()

    def ended(self) -> None:
        if not (self._is_joining or self.client.is_open or self.server.is_open):
            self._on_over(self)

    def pump(self) -> None:
        self.client.pump()
        self.server.pump()

    def silence(self) -> None:
        """Let neither end hear of the other again; what is held is lost."""
        self.is_silent = self.has_hole = True
        self.client.forget_held()
        self.server.forget_held()

    def cut(self) -> None:
        """Reset both ends; what is held is lost."""
        self.is_cut = True
        self.client.reset()
        self.server.reset()

    def cut_behind(self, end: "End") -> None:
        """Reset the end that was heard; the other one still gets what was passed to it."""
        self.is_cut = True
        end.reset()
        self.other(end).close()


class End(asyncio.Protocol):
    def __init__(self, link: Link, hears: Direction) -> None:
        self._link = link
        self._hears = hears
        self._transport: asyncio.Transport | None = None
        self._held: deque[tuple[float, bytes]] = deque()
        """With the time from which it may pass."""
        self._held_bytes = 0
        self._pumping: asyncio.TimerHandle | None = None
        self.is_full = False
        self._has_ended = False

    @property
    def is_open(self) -> bool:
        return self._transport is not None

    # -- the event loop's side -------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports do what asyncio.Transport does without being one.
        self._transport = cast(asyncio.Transport, transport)
        self._transport.set_write_buffer_limits(HELD_BYTES_MAX)
        if self._link.is_cut:
            self.reset()
        else:
            self._link.pump()

    def data_received(self, data: bytes) -> None:
        if self._is_dropped:
            self._link.has_hole = True
            self._link.traffic.bytes_dropped += len(data)
            return
        due = asyncio.get_running_loop().time() + self._link.faults.delay_s
        self._held.append((due, data))
        self._held_bytes += len(data)
        self.pump()

    def connection_lost(self, error: Exception | None) -> None:
        self._transport = None
        self._has_ended = True
        if self._is_dropped:
            self._link.has_hole = True
        elif error is not None:
            self._link.cut()
        else:
            self.pump()
        self._link.ended()

    def pause_writing(self) -> None:
        self.is_full = True

    def resume_writing(self) -> None:
        self.is_full = False
        self._link.other(self).pump()

    # -- passing on ------------------------------------------------------------------------------

    def pump(self) -> None:
        """Pass on what is due, and listen if there is room for more."""
        if self._pumping is not None:
            self._pumping.cancel()
            self._pumping = None
        loop, other = asyncio.get_running_loop(), self._link.other(self)
        now = loop.time()
        while self._held and self._may_pass and self._held[0][0] <= now:
            self._pass(self._held.popleft()[1])
        if self._held and self._may_pass:
            self._pumping = loop.call_at(self._held[0][0], self.pump)
        if not (self._held or self._is_stalled or self._link.is_silent) and self._has_ended:
            other.close()
        self._choose_whether_to_listen()

    @property
    def _is_dropped(self) -> bool:
        return self._link.is_silent or self._hears in self._link.faults.dropped

    @property
    def _is_stalled(self) -> bool:
        return self._hears in self._link.faults.stalled

    @property
    def _may_pass(self) -> bool:
        other = self._link.other(self)
        return other.is_open and not other.is_full and not self._is_stalled

    def _pass(self, data: bytes) -> None:
        self._held_bytes -= len(data)
        left = self._link.faults.bytes_left
        is_last = self._hears in left and len(data) >= left[self._hears]
        if is_last:
            data = data[: left.pop(self._hears)]
        elif self._hears in left:
            left[self._hears] -= len(data)
        self._link.traffic.count(self._hears, len(data))
        self._link.other(self).write(data)
        if is_last:
            self._link.on_last_byte(self._link, self)

    def _choose_whether_to_listen(self) -> None:
        transport = self._transport
        if transport is None or transport.is_closing():
            return
        listens = (
            self._link.other(self).is_open
            and not self._is_stalled
            and self._held_bytes < HELD_BYTES_MAX
        )
        if listens and not transport.is_reading():
            transport.resume_reading()
        elif not listens and transport.is_reading():
            transport.pause_reading()

    def write(self, data: bytes) -> None:
        if self._transport is not None and data:
            self._transport.write(data)

    # -- end -------------------------------------------------------------------------------------

    def close(self) -> None:
        """Send what is due, then close."""
        self.forget_held()
        if self._transport is not None:
            self._transport.close()

    def reset(self) -> None:
        """End at once, and let the peer see a reset."""
        self.forget_held()
        if self._transport is not None and not self._transport.is_closing():
            peer: socket.socket = self._transport.get_extra_info("socket")
            peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_ON_CLOSE)
        if self._transport is not None:
            self._transport.abort()

    def forget_held(self) -> None:
        self._held.clear()
        self._held_bytes = 0
        if self._pumping is not None:
            self._pumping.cancel()
            self._pumping = None
