"""Coroutine tests run as those of the transport do; all tests get a broker without sockets."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from cometmq.broker import delays
from cometmq.broker.timers import timers
from cometmq.testing.clock import ManualClock
from tests.broker.desk import Desk
from tests.transport.conftest import pytest_generate_tests, pytest_pyfunc_call

__all__ = ["pytest_generate_tests", "pytest_pyfunc_call"]


@pytest.fixture
def frequent_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Delays and timers follow a clock that jumps."""
    for module in (delays, timers):
        monkeypatch.setattr(module, "LOOK_INTERVAL_S", 0.01)
        monkeypatch.setattr(module, "RETRY_S", 0.01)


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def desk(tmp_path: Path, clock: ManualClock) -> Iterator[Desk]:
    opened = Desk(tmp_path / "store", clock)
    yield opened
    opened.close()
