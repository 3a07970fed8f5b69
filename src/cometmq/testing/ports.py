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

    Other systems than Linux do not let two sockets share a port so; there it is only free now.
    """

    def __init__(self) -> None:
        self._socket = bound_socket(0)
        self.number: int = self._socket.getsockname()[1]
        if sys.platform != "linux":
            self._socket.close()

    def release(self) -> None:
        self._socket.close()


def bound_socket(port: int) -> socket.socket:
    found = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    try:
        found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        found.bind((LOOPBACK, port))
    except BaseException:
        found.close()
        raise
    return found


def reserve_ports(count: int, apart: int) -> list[ReservedPort]:
    """So many ports, no two of them exactly `apart` from each other."""
    reserved: list[ReservedPort] = []
    unfit: list[ReservedPort] = []  # Kept until the end, so as not to be given out again.
    for _ in range(TRIES_MAX):
        if len(reserved) == count:
            break
        port = ReservedPort()
        near = any(abs(port.number - other.number) == apart for other in reserved)
        (unfit if near else reserved).append(port)
    for port in unfit:
        port.release()
    if len(reserved) < count:
        for port in reserved:
            port.release()
        raise OSError(f"no {count} free ports at {LOOPBACK}")
    return reserved
