"""Takes the pictures of docs/pictures: runs the real program and draws what it printed.

Run it after a change of what commands print: `make pictures`. It wants the ports 9876 and 10911,
since that is what a newcomer sees, and leaves nothing behind but the pictures. A minute, half of it
for the report, which needs Spark.
"""

import argparse
import contextlib
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from tools.report_chart import chart
from tools.terminal import Exchange, picture

DIRECTORY: Final = Path(__file__).parents[1] / "docs" / "pictures"
STANDALONE: Final = "cometmq standalone"
TIMEOUT_S: Final = 120.0
STOP_S: Final = 20.0
_ADDRESS: Final = re.compile(r"ready namesrv=(\S+)")
_MESSAGE_ID: Final = re.compile(r"\b[0-9A-F]{32}\b")
_OURS: Final = ("COMETMQ_", "NAMESRV_ADDR", "XDG_")


class Scene(NamedTuple):
    title: str
    commands: Sequence[str]
    """As typed; `ID` stands for the id of the message that was sent first."""


SCENES: Final[Mapping[str, Scene]] = {
    "first": Scene(
        "from nothing to a message",
        (
            f"{STANDALONE} &",
            "cometmq topic create orders --queues 2",
            'cometmq send orders "one coffee" --key order-1 --tag paid',
            "cometmq consume orders -g bar --max 1",
            "cometmq topic list",
        ),
    ),
    "message": Scene("what became of it", ("cometmq message show ID --topic orders",)),
    "lag": Scene(
        "who is how far",
        (
            'seq -f "order %g" 5000 | cometmq send orders - -q',
            "cometmq consume orders -g bar --max 2000 -o json | wc -l",
            "cometmq group lag bar",
            "cometmq broker list",
        ),
    ),
    "doctor": Scene(
        "what usually goes wrong",
        ('cometmq doctor --topic payments --group bar; echo "exit code $?"',),
    ),
    "bench": Scene("how fast is this machine", ("cometmq bench --messages 50000 --size 256",)),
}
"""One after the other, at one cluster."""

REPORT: Final = "report"
_SHOPS: Final = {"orders": (1500, 60), "payments": (500, 25), "refunds": (100, 10)}
"""What the report tells of: so many messages of a topic, so many a second."""


class Terminal(NamedTuple):
    """Where commands are typed: beside a cluster, in a home of their own."""

    home: Path
    env: Mapping[str, str]
    ready: str
    """What the cluster said when it was there."""

    def said(self, command: str) -> str:
        if command.startswith(STANDALONE):
            return self.ready
        done = subprocess.run(
            ["sh", "-c", command], cwd=self.home, env=self.env, timeout=TIMEOUT_S, check=False,
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        )  # fmt: skip
        if done.returncode != 0:
            raise SystemExit(f"{command}: {done.stdout}")
        return done.stdout


def take(directory: Path, standalone: str = STANDALONE, *, with_report: bool = True) -> None:
    """All pictures; `standalone` is how the cluster is started."""
    directory.mkdir(parents=True, exist_ok=True)
    with _terminal(standalone) as terminal:
        for name, exchanges in _played(terminal):
            (directory / f"{name}.svg").write_text(picture(SCENES[name].title, exchanges))
        if with_report:
            (directory / f"{REPORT}.svg").write_text(chart(_report(terminal)))


def _played(terminal: Terminal) -> Iterator[tuple[str, list[Exchange]]]:
    sent = ""
    for name, scene in SCENES.items():
        exchanges = []
        for typed in scene.commands:
            command = typed.replace(" ID ", f" {sent} ")
            exchanges.append(Exchange(command, terminal.said(command)))
            sent = sent or "".join(_MESSAGE_ID.findall(exchanges[-1].output)[:1])
        yield name, exchanges


def _report(terminal: Terminal) -> str:
    """A page about some seconds with traffic."""
    for topic in _SHOPS:
        terminal.said(f"cometmq topic create {topic} --queues 2")
    begun_ms = time.time_ns() // 1_000_000
    sends = [
        f"seq {count} | cometmq send {topic} - -q --rate {rate} & "
        for topic, (count, rate) in _SHOPS.items()
    ]
    terminal.said("".join(sends) + "wait")
    passed_s = -(-(time.time_ns() // 1_000_000 - begun_ms) // 1000)
    topics = " ".join(f"--topic {topic}" for topic in _SHOPS)
    terminal.said(f"cometmq spark report {topics} --since {passed_s}s --out report.html")
    return (terminal.home / "report.html").read_text()


@contextlib.contextmanager
def _terminal(standalone: str) -> Iterator[Terminal]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(_OURS)}
    path = f"{Path(sys.executable).parent}{os.pathsep}{kept.get('PATH', '')}"
    with tempfile.TemporaryDirectory() as home:
        env = {**kept, "HOME": home, "PATH": path}
        process = subprocess.Popen(
            standalone.split(), cwd=home, env=env, stdout=subprocess.PIPE, text=True
        )
        assert process.stdout is not None
        try:
            ready = process.stdout.readline()
            address = _ADDRESS.match(ready)
            if address is None:
                raise SystemExit(f"{standalone}: it did not start")
            yield Terminal(Path(home), {**env, "NAMESRV_ADDR": address[1]}, ready)
        finally:
            process.terminate()
            process.communicate(timeout=STOP_S)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("directory", nargs="?", type=Path, default=DIRECTORY)
    take(parser.parse_args().directory)


if __name__ == "__main__":
    main()
