"""Connections that we open."""

import asyncio
import os
import ssl
from collections.abc import Callable

from .connection import Connection, Handlers
from .errors import ConnectFailed
from .limits import Limits

_DEFAULT_LIMITS = Limits()


async def connect(
    address: str,
    handlers: Handlers | None = None,
    *,
    timeout_s: float = 3.0,
    tls: ssl.SSLContext | None = None,
    on_close: Callable[[Connection], None] | None = None,
) -> Connection:
    """A connection to `host:port`; requests that come back over it go to `handlers`."""
    host, port = split_address(address)
    loop = asyncio.get_running_loop()
    try:
        async with asyncio.timeout(timeout_s):
            _, connection = await loop.create_connection(
                lambda: Connection(handlers or {}, _DEFAULT_LIMITS, on_close=on_close), host, port
            )
    except (OSError, TimeoutError) as error:
        raise ConnectFailed(f"cannot connect to {address}: {_reason(error, timeout_s)}") from error
    if tls is not None:
        connection.start_tls(tls, host)
    return connection


def _reason(error: OSError, timeout_s: float) -> str:
    # asyncio's own text is the call and the address, not what went wrong. Numbers of name look-ups
    # are negative and have their text with them.
    if error.errno is not None and error.errno > 0:
        return os.strerror(error.errno)
    return error.strerror or str(error) or f"no answer within {timeout_s:g} s"


def split_address(address: str) -> tuple[str, int]:
    """`host:port`, `[v6]:port`; ValueError with what is wrong otherwise."""
    host, separator, port = address.strip().rpartition(":")
    if not separator or not host or not port.isdigit() or int(port) > 65535:
        raise ValueError(f"{address!r} is not an address: host:port is, as in 127.0.0.1:9876")
    return host.strip("[]"), int(port)
