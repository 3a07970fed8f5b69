"""How many files a process may have open; connections count, too."""

import resource
import sys


def files_allowed() -> int:
    allowed, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return allowed if allowed != resource.RLIM_INFINITY else sys.maxsize
