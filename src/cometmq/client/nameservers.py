"""The NameServers of a cluster: one that answers is kept, else the next one is asked."""

import random
from collections.abc import Awaitable, Callable, Sequence

from cometmq.protocol.command import Command, Request

from .errors import AnswerTimedOut, BrokerError, ConnectionLost, Unreachable

_random = random.Random()  # noqa: S311 - spreads clients over servers, guards nothing

AskAddress = Callable[[str, Request], Awaitable[Command]]


class NameServers:
    def __init__(self, addresses: Sequence[str], ask: AskAddress) -> None:
        self._addresses = list(addresses)
        self._ask = ask
        self._current = _random.randrange(len(addresses))

    async def ask(self, request: Request) -> Command:
        """The answer of the first one that has one. An answer that says no is an answer, too."""
        errors = []
        count, first = len(self._addresses), self._current
        for step in range(count):
            # Counted from where this request began: others may move on at the same time.
            number = (first + step) % count
            address = self._addresses[number]
            try:
                answer = await self._ask(address, request)
            except (Unreachable, ConnectionLost, AnswerTimedOut) as error:
                errors.append(str(error))  # It names the address.
            except BrokerError:
                self._current = number
                raise
            else:
                self._current = number
                return answer
        raise Unreachable("no NameServer answers: " + "; ".join(errors))
