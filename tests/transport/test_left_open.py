"""A test that leaves a server open fails for it, or for its own error; it does not hang."""

import asyncio
from collections.abc import Callable, Coroutine

import pytest

from tests.left_open import nothing_left_open

uvloop = pytest.importorskip("uvloop")


async def leave_a_server_open() -> None:
    await asyncio.start_server(lambda *_: None, "127.0.0.1", 0)


async def fail_beside_an_open_server() -> None:
    await leave_a_server_open()
    raise ValueError("the test's own error")


def run_as_tests_do(test: Callable[[], Coroutine[None, None, None]]) -> None:
    with nothing_left_open(), asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(test())


def test_the_error_of_a_test_is_seen_behind_what_it_left_open() -> None:
    with pytest.raises(ValueError, match="the test's own error"):
        run_as_tests_do(fail_beside_an_open_server)


def test_what_a_test_leaves_open_fails_it() -> None:
    with pytest.raises(AssertionError, match=r"left open: .*unclosed"):
        run_as_tests_do(leave_a_server_open)
