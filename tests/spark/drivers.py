"""Spark drivers as processes of a test: with a master of their own, asked for queries by name."""

import contextlib
import json
import os
import queue
import subprocess
import sys
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, Self

ROOT: Final = Path(__file__).parents[2]
PROGRAM: Final = Path(__file__).with_name("driver_program.py")
ANSWER_TIMEOUT_S: Final = 300
END_TIMEOUT_S: Final = 30
SMALL: Final = {
    "spark.driver.memory": "512m",
    "spark.executor.memory": "512m",
    "spark.sql.shuffle.partitions": "2",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
}


class Driver:
    """`cometmq spark submit` of the driver's program. `ask` waits for what the query gives; between
    `begin` and `finish` the test can do something."""

    def __init__(
        self,
        log: Path,
        master: str,
        settings: Mapping[str, str],
        *,
        python: Path = Path(sys.executable),
        submit: tuple[str, ...] = (),
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self.log = log
        conf = [text for item in settings.items() for text in ("--conf", "=".join(item))]
        command = [str(python), "-m", "cometmq.cli.main", "spark", "submit", "--master", master]
        paths = filter(None, [str(ROOT), os.environ.get("PYTHONPATH")])
        with log.open("wb") as errors:
            self._process = subprocess.Popen(
                [*command, *submit, *conf, str(PROGRAM)],
                env={
                    **os.environ, "SPARK_LOCAL_IP": "127.0.0.1",
                    "PYTHONPATH": os.pathsep.join(paths), **(environment or {}),
                },
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, text=True,
            )  # fmt: skip
        self._answers: queue.Queue[str] = queue.Queue()
        self._reading = threading.Thread(target=self._read, daemon=True)
        self._reading.start()

    def ask(self, query: str, **arguments: str) -> Any:
        self.begin(query, **arguments)
        return self.finish()

    def begin(self, query: str, **arguments: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"query": query, "arguments": arguments}) + "\n")
        self._process.stdin.flush()

    def finish(self) -> Any:
        answer = self._next()
        assert "error" not in answer, answer["error"]
        return answer["answer"]

    def error_of(self, query: str, **arguments: str) -> str:
        self.begin(query, **arguments)
        error: str = self._next()["error"]
        return error

    def _next(self) -> dict[str, Any]:
        try:
            line = self._answers.get(timeout=ANSWER_TIMEOUT_S)
        except queue.Empty:
            line = ""
        assert line, f"no answer\n{tail(self.log)}"
        answer: dict[str, Any] = json.loads(line)
        return answer

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._answers.put(line)
        self._answers.put("")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.close()
        try:
            self._process.wait(END_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._reading.join(END_TIMEOUT_S)
        self._process.stdout.close()


def tail(log: Path, lines: int = 60) -> str:
    return "\n".join(log.read_text(errors="replace").splitlines()[-lines:])
