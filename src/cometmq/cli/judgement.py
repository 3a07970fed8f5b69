"""What `doctor` thinks of what it has seen: each finding with advice. Pure."""

import ipaddress
import re
from collections.abc import Mapping, Sequence, Set
from typing import Final, NamedTuple

from cometmq.protocol.routes import MASTER_ID, TopicRoute
from cometmq.protocol.topic_config import PERM_READ, PERM_WRITE
from cometmq.transport.dial import split_address

OK, WARNING, PROBLEM = "ok", "warning", "problem"
SKEW_WARNING_S: Final = 5.0
SKEW_PROBLEM_S: Final = 60.0
FILES_MIN: Final = 4096
"""A broker holds a descriptor for each connection and each mapped file."""
DISK_PROBLEM_RATIO: Final = 0.9
"""From there on RocketMQ's brokers take no writes."""
_UPTIME: Final = re.compile(r"(\d+) days?, (\d+) hours?, (\d+) minutes?, (\d+) seconds?")


class Finding(NamedTuple):
    level: str
    what: str
    found: str
    advice: str = ""


def file_limit(soft: int, hard: int) -> Finding:
    found = f"{soft} open files here, up to {hard} possible"
    if hard >= FILES_MIN:
        return Finding(OK, "file limit", found)
    return Finding(
        WARNING, "file limit", found,
        f"a broker started here may run out of them: raise the limit (`ulimit -Hn`, LimitNOFILE of "
        f"the systemd unit) to {FILES_MIN} at least",
    )  # fmt: skip


def disk(what: str, used_ratio: float, warn_ratio: float) -> Finding:
    found = f"{used_ratio:.0%} used"
    if used_ratio < warn_ratio:
        return Finding(OK, what, found)
    advice = (
        "free space, shorten the retention (fileReservedTime) or use a larger disk: from 75 % on "
        "brokers delete old messages, from 90 % on they take no writes"
    )
    return Finding(PROBLEM if used_ratio >= DISK_PROBLEM_RATIO else WARNING, what, found, advice)


def same_brokers(seen: Mapping[str, Set[str]]) -> Finding | None:
    """Of several NameServers: whether all know the same brokers."""
    if len(seen) < 2:
        return None
    everything = set().union(*seen.values())
    missing = {address: sorted(everything - known) for address, known in seen.items()}
    lacks = [f"{address} lacks {', '.join(names)}" for address, names in missing.items() if names]
    if not lacks:
        return Finding(OK, "NameServers", f"all {len(seen)} know the same brokers")
    return Finding(
        PROBLEM, "NameServers", "; ".join(lacks),
        "brokers register with every NameServer that they know: name all of them in namesrvAddr of "
        "every broker",
    )  # fmt: skip


def master_of(name: str, ids: Set[int]) -> Finding | None:
    if MASTER_ID in ids:
        return None
    return Finding(
        PROBLEM, f"broker {name}", "no master is registered, only slaves",
        "start the master (brokerId=0): until then nothing can be sent to this broker",
    )  # fmt: skip


def advertised(name: str, address: str, namesrv: str) -> Finding | None:
    """Whether clients elsewhere can use the address that a broker has registered."""
    if not _is_loopback(address) or _is_loopback(namesrv):
        return None
    return Finding(
        PROBLEM, f"broker {name}",
        f"registered as {address}, and the NameServer is at {namesrv}",
        "clients on other machines would connect to themselves: set brokerIP1 to an address that "
        "they can reach, and bindAddress to 0.0.0.0 or the same",
    )  # fmt: skip


def unreachable(name: str, address: str, error: str) -> Finding:
    return Finding(
        PROBLEM, f"broker {name}", f"does not answer at {address}: {error}",
        "the NameServer sends clients to this address: set brokerIP1 of the broker to one that can "
        "be reached from here, open its port in the firewall, or start the broker again",
    )  # fmt: skip


def clock(name: str, broker_s: float, here_s: float) -> Finding:
    """Brokers tell whole seconds."""
    skew_s = broker_s - here_s
    if abs(skew_s) < SKEW_WARNING_S:
        return Finding(OK, f"clock of {name}", "agrees with the one here")
    found = f"{abs(skew_s):.0f} s {'ahead of' if skew_s > 0 else 'behind'} the one here"
    return Finding(
        PROBLEM if abs(skew_s) >= SKEW_PROBLEM_S else WARNING, f"clock of {name}", found,
        "delays, retention and searches by time go by it: run NTP or chrony on both machines",
    )  # fmt: skip


def broker_clock_s(runtime: Mapping[str, str]) -> float | None:
    """A broker's time, out of when it was started and for how long it has been running."""
    uptime = _UPTIME.search(runtime.get("runtime", ""))
    booted = runtime.get("bootTimestamp", "")
    if uptime is None or not booted.isdecimal():
        return None
    days, hours, minutes, seconds = map(int, uptime.groups())
    up_s = ((days * 24 + hours) * 60 + minutes) * 60 + seconds
    return int(booted) / 1000 + up_s + 0.5


def versions(by_broker: Mapping[str, str]) -> Finding:
    found = sorted(set(by_broker.values()))
    if len(found) <= 1:
        return Finding(OK, "versions", ", ".join(found) or "not told")
    told = ", ".join(f"{name}: {version}" for name, version in sorted(by_broker.items()))
    return Finding(
        WARNING, "versions", told, "fine during an upgrade; else bring all to the same version"
    )


def topic_route(topic: str, route: TopicRoute) -> list[Finding]:
    """Whether messages can be sent to and read from a topic at each of its brokers."""
    what = f"topic {topic}"
    masters = {data.broker_name for data in route.broker_datas if MASTER_ID in data.broker_addrs}
    findings = []
    for queues in route.queue_datas:
        name = queues.broker_name
        lacks = [
            text
            for bit, text, count in (
                (PERM_READ, "read", queues.read_queue_nums),
                (PERM_WRITE, "written", queues.write_queue_nums),
            )
            if not queues.perm & bit or not count
        ]
        if lacks:
            findings.append(
                Finding(
                    PROBLEM, what, f"cannot be {' or '.join(lacks)} at {name}",
                    f"`cometmq topic perm {topic} rw` allows both; if the whole broker was closed: "
                    f"`cometmq broker writes {name} allow`",
                )
            )  # fmt: skip
    if route.queue_datas and not any(data.broker_name in masters for data in route.queue_datas):
        findings.append(
            Finding(PROBLEM, what, "no master has it", "start the master of one of its brokers")
        )
    return findings


def group_members(group: str, members: int, lag: int, conflicts: Sequence[str]) -> Finding:
    what, found = f"group {group}", f"{members} members online, {lag} messages behind"
    if conflicts:
        return Finding(
            PROBLEM, what, f"{found}; members subscribe differently: {', '.join(conflicts)}",
            "all members of a group subscribe to the same topics with the same filters: give those "
            "that differ a group of their own",
        )  # fmt: skip
    if not members and lag:
        return Finding(
            WARNING, what, found,
            f"start its consumers, or leave out what is there: `cometmq offset reset {group} TOPIC "
            "--to latest`",
        )  # fmt: skip
    return Finding(OK, what, found)


def _is_loopback(address: str) -> bool:
    try:
        host, _ = split_address(address)
    except ValueError:
        return False
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
