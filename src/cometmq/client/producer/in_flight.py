"""How much may be under way at once: messages that wait for a batch or for their answers.

Never more than both bounds, but that one message larger than all the bytes allowed still goes,
alone. Who waits for room is served in order and nobody overtakes.
"""

import asyncio
from collections import deque

from ..errors import TooManyInFlight


class InFlight:
    def __init__(self, messages_max: int, bytes_max: int) -> None:
        self._messages_max = messages_max
        self._bytes_max = bytes_max
        self.messages = 0
        self.bytes = 0
        self._waiting: deque[tuple[asyncio.Future[None], int, int]] = deque()
        """Senders that wait in their own tasks, and how much each wants to send."""
        self._idle = asyncio.Event()
        self._idle.set()

    def take(self, messages: int, size: int) -> bool:
        """Whether there was room. Who took it must release it."""
        if self._waiting or not self._fits(messages, size):
            return False
        if not self.messages:
            self._idle.clear()
        self.messages += messages
        self.bytes += size
        return True

    def take_or_raise(self, messages: int, size: int) -> None:
        if not self.take(messages, size):
            raise TooManyInFlight(
                f"{self.messages} messages with {self.bytes} bytes wait for their answers; "
                f"{self._messages_max} and {self._bytes_max} are allowed; "
                "`await producer.ready()` waits for room, and so does `await producer.send(…)`"
            )

    async def take_when_free(self, messages: int, size: int) -> None:
        if self.take(messages, size):
            return
        granted: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((granted, messages, size))
        try:
            await granted
        except asyncio.CancelledError:
            if granted.cancelled():
                self._serve()  # The next ones may have waited behind a larger one.
            else:
                self.release(messages, size)
            raise

    def release(self, messages: int, size: int) -> None:
        self.messages -= messages
        self.bytes -= size
        if not self.messages:
            self._idle.set()
        if self._waiting:
            self._serve()

    async def drained(self) -> None:
        """Wait until nothing is under way."""
        await self._idle.wait()

    def _fits(self, messages: int, size: int) -> bool:
        return (
            self.messages + messages <= self._messages_max and self.bytes + size <= self._bytes_max
        ) or not self.messages

    def _serve(self) -> None:
        while self._waiting:
            granted, messages, size = self._waiting[0]
            if not granted.done():
                if not self._fits(messages, size):
                    return
                self.messages += messages
                self.bytes += size
                self._idle.clear()
                granted.set_result(None)
            self._waiting.popleft()
