"""Memory that was given back, and is wanted again a moment later.

Answers to pulls are hundreds of KiB each. glibc gives such pieces back to the system when they are
freed, and for the next one the kernel clears every page anew: a third of what a pull costs. Who
handles many of them keeps what is free instead.
"""

import ctypes
import functools
import sys
from typing import Final

MAPPED_FROM_BYTES: Final = 32 << 20
"""Pieces of this size and above still go back at once; glibc's own limit."""
KEPT_BYTES: Final = 64 << 20
"""So much may be kept free at the heap's end."""
_M_TRIM_THRESHOLD: Final = -1
_M_MMAP_THRESHOLD: Final = -3


@functools.cache
def keep_freed_memory() -> bool:
    """For the whole process, once; False where there is no glibc, and nothing is changed."""
    if sys.platform != "linux":
        return False
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except AttributeError:  # Another C library.
        return False
    done = mallopt(_M_MMAP_THRESHOLD, MAPPED_FROM_BYTES)
    return bool(done and mallopt(_M_TRIM_THRESHOLD, KEPT_BYTES))
