"""Makes tests/client/allocations.json: what Java's strategies and hash selector answer.

`python -m interop.allocations_table` puts random groups and keys to the Java classes of both lines
of RocketMQ, which must agree, and writes questions and answers. The same seed gives the same file.
"""

from __future__ import annotations

import json
import random
import subprocess
import sys
from pathlib import Path

from interop import toolchain
from interop.rocketmq import JsonObject

TABLE = Path(__file__).parents[1] / "tests" / "client" / "allocations.json"
SEED = 6
GROUPS = 80
KEYS = 60
RUN_TIMEOUT_S = 120

# Names that only Java's order by UTF-16 units and its way to split at @ get right are among them.
ROOMS = ("room1", "room2", "r@", "", "😀", "～")
BROKERS = ("broker-a", "broker-b", "Broker", "broker-10", "😀", "～", "", "x@", "room1@y@")
MEMBERS = ("10.0.0.1@7", "10.0.0.2@7#1", "room1@77", "room2@8", "room9@8", "😀@1", "～@1", "é", "Z")


def group(chance: random.Random) -> JsonObject:
    """A topic's queues, shuffled, and the members of a group, some of them listed twice."""
    rooms = ["@".join(pair) for pair in zip(chance.choices(ROOMS, k=4), BROKERS[:4], strict=True)]
    brokers = sorted({*chance.sample(BROKERS, k=chance.randint(0, 3)), *rooms[:3], "room1@z"})
    queues = [(name, number) for name in brokers for number in range(chance.randint(1, 5))]
    chance.shuffle(queues)
    members = [f"{name}{chance.randrange(3)}" for name in chance.choices(MEMBERS, k=8)]
    return {
        "topic": f"topic-{chance.randrange(1000)}",
        "brokers": [name for name, _ in queues],
        "ids": [number for _, number in queues],
        "members": members[: chance.randint(1, 8)],
        "rooms": ["room1", chance.choice(ROOMS)],
        "nodes": chance.choice((1, 10, 10, 100)),
    }


def key(chance: random.Random) -> JsonObject:
    bits = chance.choice((8, 31, 32, 63))
    number = chance.randint(-(2**bits), 2**bits - 1)
    value = chance.choice((number, f"order-{number}", f"命令😀{number}"))
    return {"key": value, "count": chance.randint(1, 9)}


def cases() -> list[JsonObject]:
    chance = random.Random(SEED)
    edges = [-(2**31), 2**31, -(2**31) - 1, 2**63 - 1, -(2**63), -1, 0, "polygenelubricants", ""]
    return [
        *(group(chance) for _ in range(GROUPS)),
        *({"key": edge, "count": count} for edge in edges for count in (3, 7)),
        *(key(chance) for _ in range(KEYS)),
    ]


def answers(version: str, questions: list[JsonObject]) -> list[JsonObject]:
    """What the Java client of this version says to each question."""
    classes = toolchain.java_client_classpath(version)
    done = subprocess.run(
        # The older line hashes member ids in the platform's encoding.
        [
            toolchain.tools().java,
            "-Dfile.encoding=UTF-8",
            "-cp",
            classes,
            "cometmq.interop.Allocations",
        ],
        input="".join(json.dumps(question) + "\n" for question in questions),
        stdout=subprocess.PIPE,
        text=True,
        encoding="utf-8",
        check=True,
        timeout=RUN_TIMEOUT_S,
    )
    return [json.loads(line) for line in done.stdout.splitlines()]


def main() -> int:
    questions = cases()
    said = [answers(version, questions) for version in toolchain.JAVA_CLIENT_VERSIONS]
    assert all(len(each) == len(questions) and each == said[0] for each in said)
    rows = [question | answer for question, answer in zip(questions, said[0], strict=True)]
    lines = [json.dumps(row, ensure_ascii=False, separators=(",", ":")) for row in rows]
    TABLE.write_text("[\n" + ",\n".join(lines) + "\n]\n", encoding="utf-8")
    print(f"{len(rows)} rows, {TABLE.stat().st_size} bytes in {TABLE.name}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
