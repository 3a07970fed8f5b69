"""Event loops that a test's thread works with from outside.

What belongs to a loop is touched in that loop only; `in_own_loop` brings a call there from any
thread. Every wait has an end.
"""

import asyncio
import functools
from collections.abc import Callable
from typing import Concatenate, Final, ParamSpec, Protocol, TypeVar

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
