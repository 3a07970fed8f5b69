"""The raw load generator: sends as fast as a broker takes them, many on their way at once.

Runs as a process of its own (`python -m bench.broker.load '{"address": …}'`). It prints `begin`
when the messages begin that count, and what it saw at the end. Answers are counted, not read: that
is cheap enough to load a broker on the other core.
"""

import contextlib
import selectors
import socket
import sys
import time
from typing import Final

import msgspec

from .wire import send_frame, split

UNIT_MAX: Final = 32
"""Messages that are written together, at most."""
READ_BYTES: Final = 1 << 20
SILENCE_S: Final = 30.0
SUCCESS: Final = b'"code":0,'
_ANSWER: Final = b'"code":'


class Load(msgspec.Struct, frozen=True):
    address: str
    topic: str
    warm: int
    count: int
    body: int = 128
    queues: int = 8
    connections: int = 1
    together: int = 512
    """Messages under way on each connection."""

    @property
    def unit(self) -> int:
        return min(self.together, UNIT_MAX)


class _Pipe:
    """One connection with what is under way on it."""

    def __init__(self, load: Load, unit: bytes) -> None:
        self.socket = socket.create_connection(split(load.address))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.socket.setblocking(False)
        self._unit = unit
        self._count = load.unit
        self._room = load.together
        self._unsent = memoryview(b"")
        self._under_way = 0
        self._tail = b""

    def write(self, most: int) -> int:
        """Send while there is room for it, and no more than so many; how many were begun."""
        begun = 0
        with contextlib.suppress(BlockingIOError):
            while True:
                if not self._unsent:
                    if begun >= most or self._under_way + self._count > self._room:
                        break
                    self._unsent = memoryview(self._unit)
                    self._under_way += self._count
                    begun += self._count
                self._unsent = self._unsent[self.socket.send(self._unsent) :]
        return begun

    def read(self) -> int:
        """How many answers came."""
        data = self.socket.recv(READ_BYTES)
        if not data:
            raise ConnectionError("the broker closed the connection")
        seen = self._tail + data
        self._tail = seen[-len(SUCCESS) + 1 :]
        answers = seen.count(SUCCESS)
        if seen.count(_ANSWER, 0, len(seen) - 2) > answers:
            raise ConnectionError(f"a message was refused: {seen[:600]!r}")
        self._under_way -= answers
        return answers


def run(load: Load) -> dict[str, float]:
    body = b"x" * load.body
    unit = b"".join(send_frame(load.topic, n % load.queues, body, n) for n in range(load.unit))
    with contextlib.ExitStack() as stack:
        pipes = [_Pipe(load, unit) for _ in range(load.connections)]
        for pipe in pipes:
            stack.enter_context(pipe.socket)
        return _driven(load, pipes)


def _driven(load: Load, pipes: list[_Pipe]) -> dict[str, float]:
    total = -(-(load.warm + load.count) // load.unit) * load.unit
    unbegun, acknowledged, began = total, 0, 0.0
    with selectors.DefaultSelector() as selector:
        for pipe in pipes:
            selector.register(pipe.socket, selectors.EVENT_READ, pipe)
            unbegun -= pipe.write(unbegun)
        while acknowledged < total:
            events = selector.select(SILENCE_S)
            if not events:
                raise TimeoutError(f"{acknowledged} of {total} acknowledged, then silence")
            for key, _ in events:
                acknowledged += key.data.read()
                unbegun -= key.data.write(unbegun)
            if not began and acknowledged >= load.warm:
                began, before = time.monotonic(), acknowledged
                print("begin", flush=True)
    return {"msgs_per_s": (acknowledged - before) / (time.monotonic() - began)}


if __name__ == "__main__":
    print(msgspec.json.encode(run(msgspec.json.decode(sys.argv[1], type=Load))).decode())
