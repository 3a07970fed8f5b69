"""The unique ids of this process: all its producers take them from one counter.

A forked process begins with a number of its own, so no two processes make equal ids.
"""

import os
import secrets
import socket

from cometmq.protocol.message_id import UniqueIds

from ..cluster import local_ip

_ids: UniqueIds | None = None


def unique_ids() -> UniqueIds:
    global _ids  # noqa: PLW0603 - one for the whole process is the point
    if _ids is None:
        _ids = UniqueIds(socket.inet_aton(local_ip()), secrets.randbits(32))
    return _ids


def _forget() -> None:
    global _ids  # noqa: PLW0603
    _ids = None


os.register_at_fork(after_in_child=_forget)
