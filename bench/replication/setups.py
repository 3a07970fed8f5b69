"""The groups of brokers that are measured: a master with its slave, three that elect a leader, and
a broker alone.

All have their defaults but for what makes them such a group. RocketMQ's waits for a slave only with
`inSyncReplicas=2`; its DLedger mode acknowledges what a majority has in memory, as ours does with
asynchronous flush.
"""

import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Final

import msgspec
from interop.rocketmq import HOST, Broker, ConfigValue, RocketMQError, free_port
from interop.systems import Cluster

from ..broker.cases import SYNC_FLUSH
from ..broker.sides import CONFIG, OURS, PEER, SIDES
from ..broker.wire import ask, send_frame

READY_TIMEOUT_S: Final = 60.0
RETRY_S: Final = 0.1
REGISTER_PERIOD_MS: Final = 10_000
"""A slave of RocketMQ's hears where its master is when it registers."""
Config = Mapping[str, ConfigValue]


class Setup(msgspec.Struct, frozen=True):
    name: str
    """As a table says it."""
    side: str
    slaves: int = 0
    members: int = 0
    """Of a Raft group."""
    config: Config = {}

    def configs(self) -> list[Config]:
        """One for each broker."""
        if self.members:
            return self._of_members()
        if not self.slaves:
            return [self.config]
        shared = {**self.config, "registerNameServerPeriod": REGISTER_PERIOD_MS}
        master: Config = {
            "brokerRole": "SYNC_MASTER",
            "brokerId": 0,
            "inSyncReplicas": self.slaves + 1,
        }
        slaves = [
            {"brokerRole": "SLAVE", "brokerId": number + 1, **shared}
            for number in range(self.slaves)
        ]
        return [{**shared, **master}, *slaves]

    def _of_members(self) -> list[Config]:
        peers = ";".join(f"n{number}-{HOST}:{free_port()}" for number in range(self.members))
        group: Config = {
            "enableDLegerCommitLog": True,
            "dLegerGroup": "broker-a",
            "dLegerPeers": peers,
        }
        return [
            {**self.config, **group, "dLegerSelfId": f"n{number}"} for number in range(self.members)
        ]


SETUPS: Final[Mapping[str, Setup]] = {
    "pair": Setup("CometMQ, SYNC_MASTER and a slave", OURS, slaves=1),
    "rocketmq_pair": Setup("RocketMQ 5.5.0, SYNC_MASTER and a slave", PEER, slaves=1),
    "raft": Setup("CometMQ, Raft group of 3", OURS, members=3),
    "rocketmq_dledger": Setup("RocketMQ 5.5.0, DLedger group of 3", PEER, members=3),
    "raft_sync": Setup("CometMQ, Raft group of 3, SYNC_FLUSH", OURS, members=3, config=SYNC_FLUSH),
    "alone_sync": Setup("CometMQ alone, SYNC_FLUSH", OURS, config=SYNC_FLUSH),
}


@contextmanager
def serving(setup: Setup, home: Path) -> Iterator[tuple[Cluster, tuple[Broker, ...]]]:
    """The cluster with the broker that takes messages, and the others; killed at the end."""
    system = SIDES[setup.side]
    with ExitStack() as stack:
        namesrv = system.name_server(home / "namesrv")
        stack.callback(namesrv.kill)
        namesrv.start()
        brokers = [
            system.broker(
                home / f"broker-{number}", home / f"store-{number}", namesrv.address,
                config={**CONFIG, **config},
            )
            for number, config in enumerate(setup.configs())
        ]  # fmt: skip
        for broker in brokers:
            stack.callback(broker.kill)
        # One member alone has nobody to vote for it; a slave wants to find its master.
        with ThreadPoolExecutor(setup.members or 1) as threads:
            list(threads.map(Broker.start, brokers))
        first = _first_to_serve(brokers)
        others = tuple(broker for broker in brokers if broker is not first)
        yield Cluster(system, namesrv, first), others


def _first_to_serve(brokers: Sequence[Broker]) -> Broker:
    """Who acknowledges a message, which is at the others then."""
    deadline = time.monotonic() + READY_TIMEOUT_S
    frame = send_frame("bench-first", 0, b"first")
    while time.monotonic() < deadline:
        for broker in brokers:
            with suppress(OSError):
                if ask(broker.address, frame).code == 0:
                    return broker
        time.sleep(RETRY_S)
    raise RocketMQError(f"none of {len(brokers)} brokers acknowledges anything")
