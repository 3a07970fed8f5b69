"""`cometmq doctor`: what usually goes wrong between clients, NameServers and brokers."""

import argparse
import asyncio
import dataclasses
import resource
import sys
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

from cometmq import __version__
from cometmq.client.admin import Admin
from cometmq.client.admin.brokers import RuntimeInfo
from cometmq.client.admin.reach import BrokerNode
from cometmq.client.cluster import Cluster
from cometmq.client.errors import ClientError, ConsumerNotOnline, GroupNotFound, TopicNotFound
from cometmq.protocol import hot
from cometmq.store.disk import Disk

from . import judgement
from .arguments import DEFAULT_DATA_DIR, add_output_option
from .connection import add_connection_options, cluster_of
from .exits import Exit
from .judgement import OK, PROBLEM, WARNING, Finding
from .view import as_json, printable

DISK_PERCENT = 75.0
_CONFLICTS = "subscriptionConflicts_"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Looks at this machine, the NameServers, every broker, and the topics; says what is wrong "
        "and what to do about it. Exit code 1 when there is a problem."
    )
    parser.add_argument(
        "--topic", action="append", default=[], help="only this; may be given again"
    )
    parser.add_argument("--group", action="append", default=[], help="look at this group, too")
    parser.add_argument(
        "--data-dir", type=Path, default=DEFAULT_DATA_DIR, metavar="DIR",
        help=f"a broker's files on this machine (./{DEFAULT_DATA_DIR})",
    )  # fmt: skip
    parser.add_argument(
        "--disk-percent", type=float, default=DISK_PERCENT, metavar="N",
        help=f"warn of disks that are so full ({DISK_PERCENT:g})",
    )  # fmt: skip
    add_output_option(parser)
    add_connection_options(parser)
    parser.set_defaults(run=_run)


def _run(options: argparse.Namespace) -> int:
    return asyncio.run(_tell(options))


async def _tell(options: argparse.Namespace) -> int:
    findings = []
    async for finding in _examine(cluster_of(options), options):
        findings.append(finding)
        if options.output == "table":
            sys.stdout.write(as_line(finding))
            sys.stdout.flush()
    if options.output == "json":
        sys.stdout.write(as_json([finding._asdict() for finding in findings]))
    else:
        sys.stdout.write(_sum(findings))
    return Exit.FAILED if any(finding.level == PROBLEM for finding in findings) else Exit.DONE


def as_line(finding: Finding) -> str:
    mark = finding.level if finding.level == OK else finding.level.upper()
    line = f"{mark:<8} {finding.what}: {printable(finding.found)}\n"
    return f"{line}{'':<9}→ {finding.advice}\n" if finding.advice else line


def _sum(findings: list[Finding]) -> str:
    problems = sum(finding.level == PROBLEM for finding in findings)
    warnings = sum(finding.level == WARNING for finding in findings)
    return f"\n{problems} problems, {warnings} warnings, {len(findings)} things looked at\n"


async def _examine(cluster: Cluster, options: argparse.Namespace) -> AsyncIterator[Finding]:
    for finding in _here(options):
        yield finding
    seen: dict[str, set[str]] = {}
    nodes: dict[str, BrokerNode] = {}
    for address in cluster.addresses:
        finding, found = await _namesrv(cluster, address)
        yield finding
        if found is not None:
            seen[address] = {node.name for node in found}
            nodes |= {node.address: node for node in found}
    if disagreement := judgement.same_brokers(seen):
        yield disagreement
    if not seen:
        return
    reachable = dataclasses.replace(cluster, namesrv=list(seen))
    async with Admin(reachable) as admin:
        examined = _Examination(admin, reachable.addresses[0], list(nodes.values()), options)
        for part in (examined.brokers, examined.topics, examined.groups):
            async for finding in part():
                yield finding


def _here(options: argparse.Namespace) -> Iterator[Finding]:
    codec = "compiled codec" if hot.COMPILED else "plain Python codec"
    advice = "" if hot.COMPILED else "slower; install with a C compiler at hand to have it compiled"
    python = ".".join(map(str, sys.version_info[:3]))
    yield Finding(OK, "this program", f"cometmq {__version__}, Python {python}, {codec}", advice)
    yield judgement.file_limit(*resource.getrlimit(resource.RLIMIT_NOFILE))
    directory: Path = options.data_dir
    if directory.exists():
        used_ratio = Disk().used_percent(directory) / 100
        yield judgement.disk(f"disk of {directory}", used_ratio, options.disk_percent / 100)


async def _namesrv(cluster: Cluster, address: str) -> tuple[Finding, list[BrokerNode] | None]:
    began = time.perf_counter()
    try:
        async with Admin(dataclasses.replace(cluster, namesrv=address)) as admin:
            nodes = await admin.brokers.nodes()
    except ClientError as error:
        advice = (
            "is one running there (`cometmq standalone`, `cometmq namesrv`), and does it listen at "
            "an address that this machine reaches (bindAddress)? TLS and keys must fit, too"
        )
        return Finding(PROBLEM, f"NameServer {address}", str(error), advice), None
    took_ms = (time.perf_counter() - began) * 1000
    found = f"answers in {took_ms:.0f} ms; brokers it knows: {len(nodes)}"
    return Finding(OK, f"NameServer {address}", found), nodes


class _Examination:
    """Of what lies behind the NameServers."""

    def __init__(
        self, admin: Admin, namesrv: str, nodes: list[BrokerNode], options: argparse.Namespace
    ) -> None:
        self._admin = admin
        self._namesrv = namesrv
        self._nodes = sorted(nodes, key=lambda node: (node.name, node.broker_id))
        self._options = options
        self._infos: dict[str, RuntimeInfo] = {}

    async def brokers(self) -> AsyncIterator[Finding]:
        if not self._nodes:
            yield Finding(
                PROBLEM, "brokers", "none is registered",
                "start one with this NameServer: `cometmq broker -n HOST:PORT`; a broker that is "
                "running may know another NameServer (namesrvAddr)",
            )  # fmt: skip
            return
        for name in sorted({node.name for node in self._nodes}):
            ids = {node.broker_id for node in self._nodes if node.name == name}
            if finding := judgement.master_of(name, ids):
                yield finding
        for node in self._nodes:
            async for finding in self._broker(node):
                yield finding
        yield judgement.versions({name: info.version for name, info in self._infos.items()})

    async def _broker(self, node: BrokerNode) -> AsyncIterator[Finding]:
        if finding := judgement.advertised(node.name, node.address, self._namesrv):
            yield finding
        name = node.name if node.broker_id == 0 else f"{node.name} (slave {node.broker_id})"
        try:
            info = (await self._admin.brokers.runtime_info(brokers=[node.address]))[node.name]
        except ClientError as error:
            yield judgement.unreachable(name, node.address, str(error))
            return
        here_s = time.time()
        self._infos[name] = info
        yield Finding(OK, f"broker {name}", f"answers at {node.address}")
        broker_s = judgement.broker_clock_s(info.table)
        if broker_s is not None:
            yield judgement.clock(name, broker_s, here_s)
        yield judgement.disk(f"disk of {name}", info.disk_ratio, self._options.disk_percent / 100)

    async def topics(self) -> AsyncIterator[Finding]:
        if not self._nodes:
            return
        names = self._options.topic or await self._admin.topics.names()
        well = 0
        for name in names:
            try:
                findings = judgement.topic_route(name, await self._admin.topics.route(name))
            except TopicNotFound:
                yield Finding(
                    PROBLEM, f"topic {name}", "no NameServer knows it",
                    f"`cometmq topic create {name}`, or let brokers make topics that are sent to "
                    "(autoCreateTopicEnable=true)",
                )  # fmt: skip
                continue
            for finding in findings:
                yield finding
            well += not findings
        if well:
            told = f"{well} of {len(names)} can be read and written everywhere"
            yield Finding(OK, "topics", told)

    async def groups(self) -> AsyncIterator[Finding]:
        for group in self._options.group:
            yield await self._group(group)

    async def _group(self, group: str) -> Finding:
        try:
            await self._admin.groups.config(group)
            progress = await self._admin.groups.progress(group)
        except GroupNotFound:
            return Finding(
                PROBLEM, f"group {group}", "no broker knows it",
                f"its first consumer makes it, or `cometmq group create {group}`",
            )  # fmt: skip
        try:
            members = len((await self._admin.members.of_group(group)).connection_set)
        except ConsumerNotOnline:
            members = 0
        conflicts = {info.table.get(_CONFLICTS + group, "") for info in self._infos.values()}
        return judgement.group_members(group, members, progress.lag, sorted(conflicts - {""}))
