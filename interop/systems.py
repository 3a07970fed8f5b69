"""The two systems that every client scenario runs against: CometMQ, and the real thing.

A scenario that passes against CometMQ alone could simply be wrong; the real Apache RocketMQ is the
judge of the suite itself, in the full set. `COMETMQ_INTEROP_SYSTEMS=cometmq` (or `rocketmq`, or
both with a comma) chooses.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from interop import comet
from interop.rocketmq import Broker, ConfigValue, NameServer

SHORT_DELAYS = "1s 1s 1s 1s 2s 2s 2s 2s 3s 3s 3s 3s 4s 4s 4s 4s 5s 5s"
"""Delay levels with which a test of retries does not take minutes."""

CLUSTER_CONFIG: Mapping[str, ConfigValue] = {
    "mappedFileSizeCommitLog": 64 << 20,
    "maxHashSlotNum": 100_000,
    "maxIndexNum": 400_000,
    "messageDelayLevel": SHORT_DELAYS,
    "enablePropertyFilter": True,
}


@dataclass(frozen=True)
class System:
    """Where the servers of one implementation come from."""

    name: str
    name_server: type[NameServer]
    broker: type[Broker]


@dataclass(frozen=True)
class Cluster:
    """One name server and one broker, running."""

    system: System
    namesrv: NameServer
    broker: Broker


SYSTEMS = {
    "cometmq": System("cometmq", comet.NameServer, comet.Broker),
    "rocketmq": System("rocketmq", NameServer, Broker),
}


IS_SHORT = os.environ.get("COMETMQ_INTEROP_SET", "full") == "short"


def chosen() -> list[System]:
    """Both; in the short set CometMQ alone, since the suite has been judged in the full one."""
    names = os.environ.get("COMETMQ_INTEROP_SYSTEMS")
    if names:
        return [SYSTEMS[name] for name in names.split(",")]
    return [SYSTEMS["cometmq"]] if IS_SHORT else list(SYSTEMS.values())


@contextmanager
def running(
    system: System, home: Path, config: Mapping[str, ConfigValue] | None = None
) -> Iterator[Cluster]:
    """A name server and a broker of a system; killed at the end, since nobody needs the store."""
    with ExitStack() as stack:
        namesrv = system.name_server(home / "namesrv")
        stack.callback(namesrv.kill)
        namesrv.start()
        broker = system.broker(
            home / "broker",
            home / "store",
            namesrv.address,
            config={**CLUSTER_CONFIG, **(config or {})},
        )
        stack.callback(broker.kill)
        broker.start()
        yield Cluster(system, namesrv, broker)
