"""Spark's Java and its Python workers wait for one another's acknowledgements; here they need not.

Java sends a task's beginning and its input apart. TCP keeps the second piece back until the first
is acknowledged (Nagle), and who has nothing to send acknowledges 40 ms later; a task's last words
wait in the same way. That is more than a short task takes, so what is unpickled in a worker as a
task begins acknowledges what has come, and has later words leave at once.
"""

import contextlib
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

_OPEN_FILES: Final = Path("/proc/self/fd")
_OPTIONS: Final = (socket.TCP_NODELAY, getattr(socket, "TCP_QUICKACK", socket.TCP_NODELAY))
_FAMILIES: Final = (socket.AF_INET, socket.AF_INET6)


class GoesToWorkers:
    """What Spark pickles for each task. A worker is not told which of its sockets is Java's, so
    all that it has become prompt; elsewhere it changes nothing that matters."""

    def __setstate__(self, state: Mapping[str, Any]) -> None:
        self.__dict__.update(state)
        with contextlib.suppress(OSError):  # Other systems keep no such list.
            for file in _OPEN_FILES.iterdir():
                _make_prompt(int(file.name))


def _make_prompt(fd: int) -> None:
    with contextlib.suppress(OSError):  # Most files are no sockets, and the list's own is closed.
        link = socket.socket(fileno=fd)
        try:
            if link.family in _FAMILIES and link.type == socket.SOCK_STREAM:
                for option in _OPTIONS:
                    link.setsockopt(socket.IPPROTO_TCP, option, 1)
        finally:
            link.detach()
