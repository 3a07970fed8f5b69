"""Coroutine tests of this directory run once on every event loop, and within a time limit.

A module may name fewer loops in its own `LOOPS`, and a longer time in `TEST_TIMEOUT_S`. What a
callback raises and nobody sees fails the test too, and so does what it leaves open.
"""

import asyncio
import importlib.util
import inspect
from collections.abc import Callable
from typing import Any

import pytest

from tests.left_open import nothing_left_open

TEST_TIMEOUT_S = 60.0
LOOPS = ["asyncio", "uvloop"] if importlib.util.find_spec("uvloop") else ["asyncio"]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if inspect.iscoroutinefunction(metafunc.function):
        metafunc.fixturenames.append("loop_name")
        metafunc.parametrize("loop_name", getattr(metafunc.module, "LOOPS", LOOPS))


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    test = pyfuncitem.obj
    if not inspect.iscoroutinefunction(test):
        return None
    given = {name: pyfuncitem.funcargs[name] for name in inspect.signature(test).parameters}
    unseen: list[dict[str, Any]] = []
    loop_name = str(pyfuncitem.callspec.params["loop_name"])
    with nothing_left_open(), asyncio.Runner(loop_factory=_factory(loop_name)) as runner:
        runner.get_loop().set_exception_handler(lambda _, context: unseen.append(context))
        limit_s = getattr(pyfuncitem.module, "TEST_TIMEOUT_S", TEST_TIMEOUT_S)
        runner.run(asyncio.wait_for(test(**given), limit_s))
    assert unseen == []
    return True


def _factory(name: str) -> Callable[[], asyncio.AbstractEventLoop]:
    if name == "uvloop":
        import uvloop

        return uvloop.new_event_loop
    return asyncio.SelectorEventLoop
