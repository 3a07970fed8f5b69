"""What a coroutine test leaves open fails it, once its loop is closed."""

import contextlib
import warnings
from collections.abc import Iterator


@contextlib.contextmanager
def nothing_left_open() -> Iterator[None]:
    """Goes around a test's loop. uvloop tells of what is open while it closes: as an error that
    would end the closing half-way, which then waits for ever, and the test's own error would never
    be seen."""
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always", ResourceWarning)
        yield
    left = [str(warning.message) for warning in told]
    assert not left, f"left open: {left}"
