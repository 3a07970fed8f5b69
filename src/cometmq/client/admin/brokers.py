"""Brokers: which there are, what they report of themselves, their settings, cleaning up.

Figures of brokers come by broker name. Status of replication, and counts of subscriptions, are not
asked for here.
"""

import asyncio
import time
from collections.abc import Collection, Mapping

import msgspec

from cometmq.protocol.codes import RequestCode
from cometmq.protocol.command import Command
from cometmq.protocol.raft_group import GroupStatus
from cometmq.protocol.routes import ClusterInfo, KvTable

from ..errors import AnswerTimedOut
from .progress import BrokerProgress, broker_progress
from .reach import BrokerNode, Reach, decoded
from .settings_text import settings_in, settings_text

RAFT_TIMEOUT_S = 60.0
RAFT_POLL_S = 0.1
SLOW_TIMEOUT_S = 30.0
"""For what takes a busy broker long: all groups of it, and deleting files."""


class RuntimeInfo(msgspec.Struct, frozen=True):
    """What a broker says of itself. `table` has all of it, under RocketMQ's names."""

    table: dict[str, str]

    @property
    def version(self) -> str:
        return self.table.get("brokerVersionDesc", "")

    @property
    def boot_timestamp(self) -> int:
        return int(self._number("bootTimestamp"))

    @property
    def put_tps(self) -> float:
        """Messages a second that came in, over the last ten seconds."""
        return self._number("putTps")

    @property
    def get_tps(self) -> float:
        """Messages a second that went out, over the last ten seconds."""
        return self._number("getTransferredTps")

    @property
    def put_today(self) -> int:
        return int(self._number("msgPutTotalTodayNow") - self._number("msgPutTotalTodayMorning"))

    @property
    def get_today(self) -> int:
        return int(self._number("msgGetTotalTodayNow") - self._number("msgGetTotalTodayMorning"))

    @property
    def commit_log_min_offset(self) -> int:
        return int(self._number("commitLogMinOffset"))

    @property
    def commit_log_max_offset(self) -> int:
        return int(self._number("commitLogMaxOffset"))

    @property
    def disk_ratio(self) -> float:
        """How full the disk of the CommitLog is: 1.0 is full."""
        return self._number("commitLogDiskRatio")

    def _number(self, name: str) -> float:
        """Of several, as rates over several spans of time are, the first."""
        words = self.table.get(name, "").split()
        return float(words[0]) if words else 0.0


class StatsPeriod(msgspec.Struct, frozen=True):
    sum: int = 0
    tps: float = 0.0
    avgpt: float = 0.0
    """On average, of each event that was counted."""


class BrokerStats(msgspec.Struct, frozen=True, rename="camel"):
    stats_minute: StatsPeriod
    stats_hour: StatsPeriod
    stats_day: StatsPeriod


class Brokers:
    def __init__(self, reach: Reach) -> None:
        self._reach = reach

    # -- reads -----------------------------------------------------------------------------------

    async def nodes(self, *, cluster: str = "") -> list[BrokerNode]:
        """All brokers, slaves too."""
        nodes = await self._reach.nodes()
        found = [node for node in nodes if not cluster or node.cluster == cluster]
        return sorted(found, key=lambda node: (node.cluster, node.name, node.broker_id))

    async def cluster_info(self) -> ClusterInfo:
        return await self._reach.cluster_info()

    async def runtime_info(
        self, *, cluster: str = "", brokers: Collection[str] = (), skip_unreachable: bool = False
    ) -> dict[str, RuntimeInfo]:
        nodes = await self._reach.brokers(cluster, brokers)
        code = RequestCode.GET_BROKER_RUNTIME_INFO
        answers = await self._reach.ask_each(nodes, code, skip_unreachable=skip_unreachable)
        return {n.name: RuntimeInfo(decoded(a, KvTable, "runtime info").table) for n, a in answers}

    async def config(
        self, *, cluster: str = "", brokers: Collection[str] = (), skip_unreachable: bool = False
    ) -> dict[str, dict[str, str]]:
        nodes = await self._reach.brokers(cluster, brokers)
        code = RequestCode.GET_BROKER_CONFIG
        answers = await self._reach.ask_each(nodes, code, skip_unreachable=skip_unreachable)
        return {node.name: settings_in(answer) for node, answer in answers}

    async def progress(
        self,
        *,
        ordered_only: bool = False,
        cluster: str = "",
        brokers: Collection[str] = (),
        skip_unreachable: bool = False,
    ) -> dict[str, BrokerProgress]:
        """How far all groups are in all topics, or in those whose order matters."""
        answers = await self._reach.ask_each(
            await self._reach.brokers(cluster, brokers),
            RequestCode.GET_BROKER_CONSUME_STATS,
            {"isOrder": ordered_only},
            timeout_s=SLOW_TIMEOUT_S,
            skip_unreachable=skip_unreachable,
        )
        return {node.name: broker_progress(answer) for node, answer in answers}

    async def stats(self, broker: str, name: str, key: str) -> BrokerStats:
        """One of a broker's counters, as `TOPIC_PUT_NUMS` of a topic or `GROUP_GET_NUMS` of
        `topic@group`. BrokerFailed when nothing has been counted under that key yet."""
        nodes = await self._reach.brokers(brokers=[broker])
        fields = {"statsName": name, "statsKey": key}
        answer = await self._reach.ask(nodes[0], RequestCode.VIEW_BROKER_STATS_DATA, fields)
        return decoded(answer, BrokerStats, "counter")

    # -- changes ---------------------------------------------------------------------------------

    async def update_config(
        self, changes: Mapping[str, object], *, cluster: str = "", brokers: Collection[str] = ()
    ) -> None:
        """Change settings of running brokers."""
        nodes = await self._reach.targets(cluster, brokers)
        body = settings_text(changes)
        await self._reach.ask_each(nodes, RequestCode.UPDATE_BROKER_CONFIG, body=body)

    async def forbid_writes(self, broker: str) -> dict[str, int]:
        """Take the permission to write from all topics of a broker, so that producers leave it.
        How many topics that were, by NameServer."""
        fields = {"brokerName": broker}
        answers = await self._reach.ask_namesrvs(RequestCode.WIPE_WRITE_PERM_OF_BROKER, fields)
        return {address: _count(a, "wipeTopicCount") for address, a in answers.items()}

    async def allow_writes(self, broker: str) -> dict[str, int]:
        """Undo `forbid_writes`."""
        fields = {"brokerName": broker}
        answers = await self._reach.ask_namesrvs(RequestCode.ADD_WRITE_PERM_OF_BROKER, fields)
        return {address: _count(a, "addTopicCount") for address, a in answers.items()}

    async def clean_expired_queues(
        self, *, cluster: str = "", brokers: Collection[str] = ()
    ) -> None:
        """Delete files of queues and index whose messages are gone."""
        await self._clean(RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE, cluster, brokers)

    async def clean_unused_topics(
        self, *, cluster: str = "", brokers: Collection[str] = ()
    ) -> None:
        """Delete queues of topics that are no more."""
        await self._clean(RequestCode.CLEAN_UNUSED_TOPIC, cluster, brokers)

    async def delete_expired_log(self, *, cluster: str = "", brokers: Collection[str] = ()) -> None:
        """Delete files of the CommitLog that are over their time, now instead of at their hour."""
        await self._clean(RequestCode.DELETE_EXPIRED_COMMITLOG, cluster, brokers)

    async def _clean(self, code: RequestCode, cluster: str, brokers: Collection[str]) -> None:
        nodes = await self._reach.targets(cluster, brokers)
        await self._reach.ask_each(nodes, code, timeout_s=SLOW_TIMEOUT_S)

    # -- Raft groups -----------------------------------------------------------------------------

    async def raft_status(self, broker: str) -> GroupStatus:
        """A Raft group as one of its members sees it: the leader, for a broker's name; or the one
        at an address."""
        nodes = await self._reach.brokers(brokers=[broker])
        answer = await self._reach.ask(nodes[0], RequestCode.RAFT_STATUS)
        return decoded(answer, GroupStatus, "status of a group")

    async def transfer(self, broker: str, to: str = "") -> GroupStatus:
        """Let another member of a broker's Raft group lead: `n1`, or whoever has most of the log.
        The group when it is led again, also where that is another member than was wished."""
        await self._ask_leader(broker, RequestCode.RAFT_TRANSFER, to)
        deadline = time.monotonic() + RAFT_TIMEOUT_S
        while not (status := await self.raft_status(broker)).leader:
            if time.monotonic() > deadline:
                raise AnswerTimedOut(f"group {status.group} has no leader after a transfer")
            await asyncio.sleep(RAFT_POLL_S)
        return status

    async def add_member(self, broker: str, member: str) -> GroupStatus:
        """Let a broker join a Raft group: `n3-host:port`, which runs with `raft.join=true`."""
        await self._ask_leader(broker, RequestCode.RAFT_ADD_MEMBER, member)
        return await self.raft_status(broker)

    async def remove_member(self, broker: str, member: str) -> GroupStatus:
        """Let a member leave its Raft group; its id is not to be used again."""
        await self._ask_leader(broker, RequestCode.RAFT_REMOVE_MEMBER, member)
        return await self.raft_status(broker)

    async def _ask_leader(self, broker: str, code: RequestCode, member: str) -> None:
        nodes = await self._reach.brokers(brokers=[broker])
        await self._reach.ask(nodes[0], code, {"member": member}, timeout_s=RAFT_TIMEOUT_S)


def _count(answer: Command, name: str) -> int:
    return int(answer.text_fields().get(name, "0"))
