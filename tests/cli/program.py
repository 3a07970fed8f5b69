"""The `cometmq` program as a user runs it: a process of its own, with a home of its own."""

import contextlib
import io
import json
import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

from cometmq.cli.main import main

TIMEOUT_S = 60.0
WAIT_S = 30.0
MAIN = (sys.executable, "-m", "cometmq.cli.main")
_NOT_KEPT = ("COMETMQ_", "NAMESRV_ADDR", "XDG_", "PYTHONUNBUFFERED")


@dataclass(frozen=True)
class Ran:
    code: int
    out: str
    err: str

    @property
    def value(self) -> Any:
        return json.loads(self.out)

    @property
    def values(self) -> list[Any]:
        """Of output with a JSON document a line."""
        return [json.loads(line) for line in self.out.splitlines()]

    @property
    def rows(self) -> list[list[str]]:
        """Cells of a table; those of one line stand two blanks or more apart."""
        return [re.split(r"\s{2,}", line.strip()) for line in self.out.splitlines() if line]


class Program:
    def __init__(self, home: Path, namesrv: str = "") -> None:
        self.home = home
        self.namesrv = namesrv
        kept = {name: v for name, v in os.environ.items() if not name.startswith(_NOT_KEPT)}
        self.env = {**kept, "HOME": str(home), "XDG_CONFIG_HOME": str(home / "config")}
        if namesrv:
            self.env["NAMESRV_ADDR"] = namesrv

    def start(
        self, *arguments: object, env: Mapping[str, str] | None = None, **how: Any
    ) -> "subprocess.Popen[bytes]":
        return subprocess.Popen(
            [*MAIN, *map(str, arguments)], stdin=how.pop("stdin", subprocess.PIPE),
            stdout=how.pop("stdout", subprocess.PIPE), stderr=subprocess.PIPE,
            env={**self.env, **(env or {})}, cwd=self.home, **how,
        )  # fmt: skip

    def __call__(
        self,
        *arguments: object,
        code: int = 0,
        stdin: str = "",
        env: Mapping[str, str] | None = None,
    ) -> Ran:
        """Its output, after it ended as expected."""
        return self._ended(self.start(*arguments, env=env), code, stdin)

    def both(self, *arguments: object, code: int = 0) -> tuple[Ran, Any]:
        """For people and for programs, side by side."""
        first = self.start(*arguments)
        second = self.start(*arguments, "-o", "json")
        return self._ended(first, code), self._ended(second, code).value

    def fails(self, *arguments: object, code: int, env: Mapping[str, str] | None = None) -> str:
        """What it complains about, in one line and without a trace. Run inside of this process:
        there are many mistakes to make."""
        out, err = io.StringIO(), io.StringIO()
        on_term = signal.getsignal(signal.SIGTERM)
        with (
            mock.patch.dict(os.environ, {**self.env, **(env or {})}, clear=True),
            mock.patch("sys.stdin", io.StringIO()),
            contextlib.redirect_stdout(out),
            contextlib.redirect_stderr(err),
        ):
            assert main([*map(str, arguments)]) == code, err.getvalue()
        signal.signal(signal.SIGTERM, on_term)
        assert out.getvalue() == ""
        told = err.getvalue()
        assert told.startswith("cometmq: "), told
        assert told.count("\n") == 1, told
        return told.removeprefix("cometmq: ").rstrip("\n")

    def _ended(self, process: "subprocess.Popen[bytes]", code: int, stdin: str = "") -> Ran:
        try:
            out, err = process.communicate(stdin.encode(), TIMEOUT_S)
        finally:
            process.kill()
            process.wait()
        ran = Ran(process.returncode, out.decode(), err.decode())
        assert ran.code == code, (process.args, ran)
        return ran


@contextlib.contextmanager
def running(process: "subprocess.Popen[bytes]") -> Iterator["subprocess.Popen[bytes]"]:
    """Nothing is left of it, and it never waits for us for longer than a test may take."""
    watch = threading.Timer(WAIT_S, process.kill)
    watch.start()
    try:
        yield process
    finally:
        watch.cancel()
        process.kill()
        process.wait()
        for stream in (process.stdin, process.stdout, process.stderr):
            if stream is not None:
                stream.close()


def next_line(process: "subprocess.Popen[bytes]") -> str:
    assert process.stdout is not None
    return process.stdout.readline().decode()
