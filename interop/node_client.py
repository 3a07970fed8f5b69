"""The Node.js client (ali-ons) as a process of a test.

It exports a producer and a push consumer only. There is no pull consumer to drive (its own pulls
are what the push consumer does) and no orderly one: it never asks for a queue's lock and hands a
refused message back to the broker instead of stopping the queue. What it has of order is a sharding
key on sends and a consumer that takes the messages of a queue one after another.
"""

from __future__ import annotations

import os
from pathlib import Path

from interop import toolchain
from interop.line_client import LineClient

DRIVER = toolchain.NODE_DIR / "driver.js"


class NodeClient(LineClient):
    """Everything that the Node.js client can do: send and push."""

    def __init__(self, namesrv: str, home: Path) -> None:
        env = {**os.environ, "NODE_PATH": str(toolchain.node_modules()), "HOME": str(home)}
        super().__init__([toolchain.node(), str(DRIVER), namesrv], home / "node.log", env)
