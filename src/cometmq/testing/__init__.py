"""For tests, ours and our users': a real broker inside the test, and ways to make things fail.

    async with EmbeddedBroker() as broker:
        await broker.create_topic("orders")
        ...  # clients connect to the NameServer at broker.namesrv

With pytest the fixture `cometmq_broker` is there without an import. Names are imported when they
are used: importing this package loads no server.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .blocking import BlockingEmbeddedBroker
    from .clock import ManualClock, MovableClock
    from .disk import FailingDisk, PowerCutDisk
    from .embedded import EmbeddedBroker
    from .fault_proxy import FaultProxy
    from .link import Direction
    from .route_proxy import RouteProxy

_HOMES = {
    "BlockingEmbeddedBroker": "blocking",
    "Direction": "link",
    "EmbeddedBroker": "embedded",
    "FailingDisk": "disk",
    "FaultProxy": "fault_proxy",
    "ManualClock": "clock",
    "MovableClock": "clock",
    "PowerCutDisk": "disk",
    "RouteProxy": "route_proxy",
}

__all__ = [
    "BlockingEmbeddedBroker",
    "Direction",
    "EmbeddedBroker",
    "FailingDisk",
    "FaultProxy",
    "ManualClock",
    "MovableClock",
    "PowerCutDisk",
    "RouteProxy",
]


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f".{home}", __name__), name)
