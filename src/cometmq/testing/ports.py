"""Ports of this machine that stay ours also while nobody listens at them.

A server that stops for a while and comes back at the same port would else find it taken by any
connection that was opened meanwhile.
"""

import socket
import sys
from typing import Final

LOOPBACK: Final = "127.0.0.1"
TRIES_MAX: Final = 100


class ReservedPort:
    """Bound, but not listened at: a server of ours may listen there, nobody else gets it.

    With `below`, the port that much lower is reserved, too. Other systems than Linux do not let two
    sockets share a port so; there they are only free now.
    """

    def __init__(self, below: int = 0) -> None:
        self._sockets = _bound_pair(below) if below else [bound_socket(0)]
        self.number: int = self._sockets[0].getsockname()[1]
        if sys.platform != "linux":
            self.release()

    def release(self) -> None:
        for one in self._sockets:
            one.close()


def bound_socket(port: int) -> socket.socket:
    found = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    try:
        found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        found.bind((LOOPBACK, port))
    except BaseException:
        found.close()
        raise
    return found


def _bound_pair(below: int) -> list[socket.socket]:
    unfit: list[socket.socket] = []  # Kept until the end, so as not to be given out again.
    try:
        for _ in range(TRIES_MAX):
            upper = bound_socket(0)
            try:
                return [upper, bound_socket(upper.getsockname()[1] - below)]
            except OSError:
                unfit.append(upper)
    finally:
        for one in unfit:
            one.close()
    raise OSError(f"no two free ports at {LOOPBACK} that are {below} apart")
