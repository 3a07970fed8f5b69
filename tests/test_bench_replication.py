"""The benchmark of replication, small and of CometMQ alone; and how its figures are judged."""

import subprocess
import sys
from pathlib import Path

import msgspec
from bench.broker.cases import CPU, SPEED
from bench.replication.comparisons import COMPARISONS, Rounds, lines, markdown
from bench.replication.setups import SETUPS
from bench.report import Line

ROOT = Path(__file__).parent.parent
TIMEOUT_S = 200


def test_a_tiny_run_measures_groups_without_java() -> None:
    done = subprocess.run(
        [
            sys.executable, "-m", "bench.replication", "--quick",
            "--setups", "raft", "alone_sync", "--cases", "raw",
        ],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    told = [msgspec.json.decode(row, type=Line) for row in done.stdout.splitlines()]
    assert [(each.case, each.unit) for each in told] == [("raft raw", CPU), ("raft raw", SPEED)]
    assert all(each.ours > 0 and each.peer > 0 for each in told)


def test_a_slave_is_waited_for_and_members_know_one_another() -> None:
    master, slave = SETUPS["rocketmq_pair"].configs()
    assert (master["brokerRole"], master["inSyncReplicas"]) == ("SYNC_MASTER", 2)
    assert (slave["brokerRole"], slave["brokerId"]) == ("SLAVE", 1)
    members = SETUPS["raft_sync"].configs()
    assert [member["dLegerSelfId"] for member in members] == ["n0", "n1", "n2"]
    assert len({member["dLegerPeers"] for member in members}) == 1
    assert {member["flushDiskType"] for member in members} == {"SYNC_FLUSH"}


# -- judgement ------------------------------------------------------------------------------------

ROUNDS: Rounds = {
    "pair": {
        "sync_64": [{CPU: 20.0, SPEED: 9e3}, {CPU: 30.0, SPEED: 1e4}, {CPU: 90.0, SPEED: 1.0}]
    },
    "rocketmq_pair": {"sync_64": [{CPU: 100.0, SPEED: 6e3}]},
    "raft": {"sync_64": [{CPU: 60.0, SPEED: 6e3}]},
    "alone_sync": {"sync_64": [{CPU: 30.0, SPEED: 1e4}]},
}


def test_every_comparison_is_of_setups_that_there_are() -> None:
    assert {name for each in COMPARISONS for name in (each.first, each.second)} == set(SETUPS)


def test_lines_are_ratios_of_medians_of_what_both_have() -> None:
    told = [(each.case, each.unit, each.ratio, each.peer_name) for each in lines(ROUNDS)]
    assert told == [
        ("pair sync_64", CPU, 0.3, "RocketMQ 5.5.0, SYNC_MASTER and a slave"),
        ("pair sync_64", SPEED, 1.5, "RocketMQ 5.5.0, SYNC_MASTER and a slave"),
        ("raft sync_64", CPU, 2.0, "CometMQ alone, SYNC_FLUSH"),
        ("raft sync_64", SPEED, 0.6, "CometMQ alone, SYNC_FLUSH"),
    ]


def test_a_missed_aim_is_bold() -> None:
    rows = markdown(ROUNDS).splitlines()[2:]
    assert rows[0].endswith(f"| sync_64 | {CPU} | 30.0 | 100 | 0.30 | ≤ 0.5 |")
    assert rows[3].endswith(f"| sync_64 | {SPEED} | 6,000 | 10,000 | **0.60** | ≥ 0.7 |")
