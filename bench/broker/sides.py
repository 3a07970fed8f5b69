"""The brokers that are measured: ours, ours without the compiled codec, and the real RocketMQ's.

All have their own defaults; what interop's tests change for their own sake is changed back here.
RocketMQ's virtual machine has the collector of its own start script and a heap that fits; that
script's AlwaysPreTouch is left out, which only makes its memory look smaller.
"""

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from interop import comet, rocketmq
from interop.rocketmq import ConfigValue, ServerProcess
from interop.systems import Cluster, System, running

OURS, PURE, PEER = "cometmq", "plain", "rocketmq"
NAMES: Final = {
    OURS: "CometMQ",
    PURE: "CometMQ in plain Python",
    PEER: "Apache RocketMQ 5.5.0",
}
JVM: Final = (
    "-Xms1g", "-Xmx1g", "-XX:+UseG1GC", "-XX:G1HeapRegionSize=16m", "-XX:G1ReservePercent=25",
    "-XX:InitiatingHeapOccupancyPercent=30", "-XX:SoftRefLRUPolicyMSPerMB=0",
    "-XX:-OmitStackTraceInFastThrow", "-XX:MaxDirectMemorySize=2g", "-XX:-UseLargePages",
    "--add-exports=java.base/jdk.internal.ref=ALL-UNNAMED",
    "--add-exports=java.base/sun.nio.ch=ALL-UNNAMED",
)  # fmt: skip
CONFIG: Final[Mapping[str, ConfigValue]] = {
    "brokerClusterName": "DefaultCluster",
    "mappedFileSizeCommitLog": 1 << 30,
    "maxHashSlotNum": 5_000_000,
    "maxIndexNum": 20_000_000,
    "messageDelayLevel": "1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h",
    "enablePropertyFilter": False,
    "timerWheelEnable": True,
    "maxTransferCountOnMessageInMemory": 32,
    "maxTransferCountOnMessageInDisk": 8,
    "maxTransferBytesOnMessageInMemory": 256 * 1024,
    "maxTransferBytesOnMessageInDisk": 64 * 1024,
}


class _RocketBroker(rocketmq.Broker):
    def _process(self, home: Path) -> ServerProcess:
        return rocketmq.JvmServer("cometmq.interop.BrokerMain", home, JVM)


class _CompiledBroker(comet.Broker):
    def _process(self, home: Path) -> ServerProcess:
        return comet.CometServer("broker", home, {"COMETMQ_PURE": "0"})


class _PlainBroker(comet.Broker):
    def _process(self, home: Path) -> ServerProcess:
        return comet.CometServer("broker", home, {"COMETMQ_PURE": "1"})


SIDES: Final = {
    OURS: System(OURS, comet.NameServer, _CompiledBroker),
    PURE: System(PURE, comet.NameServer, _PlainBroker),
    PEER: System(PEER, rocketmq.NameServer, _RocketBroker),
}


@contextmanager
def serving(side: str, home: Path, config: Mapping[str, ConfigValue]) -> Iterator[Cluster]:
    with running(SIDES[side], home, {**CONFIG, **config}) as cluster:
        yield cluster


# -- what a process uses --------------------------------------------------------------------------

_SCHEDULED: Final = 2
"""The kind of clock that counts to the nanosecond, in Linux's numbering."""


def cpu_s(pid: int) -> float:
    """User and system time of all threads of a process so far."""
    return time.clock_gettime(~pid << 3 | _SCHEDULED)


def own_memory_mib(pid: int) -> float:
    """Memory of a process that is not part of a mapped file."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    sizes = {name: text for name, _, text in (line.partition(":") for line in lines)}
    return sum(int(sizes[name].split()[0]) for name in ("RssAnon", "RssShmem")) / 1024
