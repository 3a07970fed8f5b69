"""The table of message kinds in docs/compatibility.md.

A test names the scenario it proves with `@pytest.mark.scenario(...)`, and what RocketMQ did instead
with `record_property(DID, ...)`. `Recorder` writes the table if all scenarios ran against both
systems; it holds no times, so that the same results give the same table.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass, field

import pytest

from interop import systems
from interop.document import write_table

Reporting = Generator[None, pytest.TestReport, pytest.TestReport]

MARKER = "scenario(name): the row of the table of message kinds that a test proves"
DID = "did"
COLUMNS = ("scenario", "CometMQ", "Apache RocketMQ 5.5.0")

SCENARIOS = {
    "levels": "delay levels: never early, soon after, in order within a level",
    "times": "a delay of 1.5 s, or a moment to the millisecond: never early, soon after",
    "recall": "a delayed message taken back does not come; the others do",
    "decided": "transactions committed and rolled back by their producers",
    "asked": "a producer that does not know is asked until it does",
    "put aside": "a producer that never knows: the message is put aside",
    "dead producer": "a producer dies: another one of its group is asked",
    "key order": "order by key, and of a whole topic with one queue",
    "storm": "orderly consumers come and go ten times: no inversion, no queue with two of them",
    "killed in order": "orderly consumers are killed: their queues go on in order",
    "retry delays": "each retry waits for its own delay",
    "client's retries": "dead letters after as many retries as the consumer says",
    "group's retries": "retries when the consumer does not say: 16, whatever its group says",
    "orderly retries": "an orderly consumer's retries end in dead letters, too",
    "sql": "SQL92 filters: comparisons, BETWEEN, IN, IS NULL, AND, OR, NOT, parts of strings",
    "bad sql": "a wrong expression is refused when the consumer starts",
    "requests": "requests and answers, one by one and many at once",
    "no answer": "a request that nobody answers ends in time",
    "trace": "message traces of producers and consumers",
    "broker killed": "the broker is killed amid delayed messages and transactions: each once",
    "broker killed, times": "the same amid messages with times of their own: each once",
}


@dataclass
class _Outcome:
    failed: list[str] = field(default_factory=list)
    did: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        if self.failed:
            return f"**fails**: {self.failed[0]}"
        return ", ".join(dict.fromkeys(self.did)) or "pass"


class Recorder:
    """A pytest plugin: what became of every scenario, by system."""

    def __init__(self) -> None:
        self._outcomes: dict[tuple[str, str], _Outcome] = {}

    def pytest_configure(self, config: pytest.Config) -> None:
        config.addinivalue_line("markers", MARKER)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self, item: pytest.Item) -> Reporting:
        report = yield
        marker = item.get_closest_marker("scenario")
        if marker and isinstance(item, pytest.Function):
            self._add(item, report, marker.args[0])
        return report

    def _add(self, item: pytest.Function, report: pytest.TestReport, scenario: str) -> None:
        if report.skipped or (report.passed and report.when != "call"):
            return
        system = item.callspec.params["system"]
        assert isinstance(system, systems.System)
        outcome = self._outcomes.setdefault((scenario, system.name), _Outcome())
        if report.failed:
            outcome.failed.append(item.originalname)
        outcome.did += [str(value) for name, value in report.user_properties if name == DID]

    def pytest_sessionfinish(self) -> None:
        if {(name, system) for name in SCENARIOS for system in systems.SYSTEMS} <= set(
            self._outcomes
        ):
            write_table("kinds", COLUMNS, self._rows())

    def _rows(self) -> list[list[str]]:
        return [
            [text, *(str(self._outcomes[name, system]) for system in ("cometmq", "rocketmq"))]
            for name, text in SCENARIOS.items()
        ]
