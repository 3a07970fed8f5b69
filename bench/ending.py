"""How a benchmark is stopped: what it has started ends with it, and its stores go."""

import signal
import sys
from collections.abc import Callable
from typing import Final, NoReturn

from .report import progress

INTERRUPTED: Final = 130
"""As shells tell of a program that Ctrl-C ended."""


def run(main: Callable[[], int]) -> NoReturn:
    """The program. SIGTERM is to it what Ctrl-C is: all that `with` has opened is closed."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        progress("stopped before its end")
        sys.exit(INTERRUPTED)
