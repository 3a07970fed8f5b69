"""mqadmin 5.5.0: every command of what CometMQ has shows the right content, the others are refused.

The commands look at a small shop: a topic with twelve messages, its producer, a group that is online
and has not finished the last two, a group that went offline before them. Tests that change things
do so to topics and groups of their own. It has a cluster to itself, since commands such as
`wipeWritePerm` change it for everybody, and since the real broker deletes no topic without timers.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from interop import mqadmin_table, systems
from interop.mqadmin import EVENTUALLY_LIMIT_S, Message, MqAdmin, Place, Printed
from interop.systems import Cluster, System

proves = pytest.mark.mqadmin

CLUSTER = "interop"
BROKER = "broker-a"
TOPIC = "Shop"
PRODUCER = "shop_producer"
ONLINE = "shop_billing"
OFFLINE = "shop_archive"
QUEUES = range(4)
ORDERS = [
    Message(i % 4, f"order-{i} äöü", f"order-{i} every", "Odd" if i % 2 else "Even")
    for i in range(10)
]
HELD = [Message(queue, f"held-{queue}", f"held-{queue} every", "Held") for queue in (0, 1)]
# Of every queue: what is consumed, and where it ends with the messages that are held.
DONE = {0: 3, 1: 3, 2: 2, 3: 2}
ENDS = {0: 4, 1: 4, 2: 2, 3: 2}
MONITOR_LIMIT_S = 40.0


@dataclass(frozen=True)
class Shop:
    """What the commands look at, and mqadmin itself."""

    admin: MqAdmin
    broker: str
    sent: list[Place]
    client_id: str

    def topic(self, name: str, queues: int = 4) -> str:
        """A topic of a test's own."""
        counts = ("-r", str(queues), "-w", str(queues))
        self.admin.show("updateTopic", "-c", CLUSTER, "-t", name, *counts)
        return name

    def group(self, name: str) -> str:
        """A group of a test's own."""
        self.admin.show("updateSubGroup", "-b", self.broker, "-g", name)
        return name

    def progress(self, group: str) -> dict[int, tuple[int, int]]:
        """Of every queue of the shop's topic: where it ends and how far a group has come."""
        stats = self.admin.show("brokerConsumeStats", "-b", self.broker)
        rows = stats.rows_of(TOPIC, group, BROKER)
        return {int(row[0]): (int(row[1]), int(row[2])) for row in rows}

    def offsets(self, group: str) -> dict[int, int]:
        return {queue: come for queue, (_, come) in self.progress(group).items()}


@pytest.fixture(scope="module")
def admin_cluster(system: System, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    home = tmp_path_factory.mktemp(f"admin-{system.name}")
    with systems.running(system, home, {"timerWheelEnable": True}) as started:
        yield started


@pytest.fixture(scope="module")
def admin(admin_cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[MqAdmin]:
    home = tmp_path_factory.mktemp("mqadmin") / "home"
    with MqAdmin(admin_cluster.namesrv.address, home) as started:
        yield started


@pytest.fixture(scope="module")
def shop(admin_cluster: Cluster, admin: MqAdmin) -> Shop:
    broker = admin_cluster.broker.address
    admin.show("updateTopic", "-c", CLUSTER, "-t", TOPIC, "-r", "4", "-w", "4")
    sent = admin.produce(PRODUCER, TOPIC, ORDERS)
    admin.consume(OFFLINE, TOPIC, len(ORDERS))
    admin.leave(OFFLINE)
    admin.consume(ONLINE, TOPIC, len(ORDERS))
    sent += admin.produce(PRODUCER, TOPIC, HELD)
    count = len(ORDERS) + len(HELD)
    client_id = admin.consume(ONLINE, TOPIC, count)["clientId"]
    made = Shop(admin, broker, sent, client_id)
    _wait_for(lambda: admin.consume(ONLINE, TOPIC, count) and made.offsets(ONLINE) == DONE)
    admin.show("startMonitoring")  # Its first round is after 20 s; the last test looks at it.
    return made
