"""The reports of all queries as a text file for Prometheus (node_exporter's textfile collector).

Rewritten as a whole, so a reader never sees half of it. A query that has ended has no gauges any
more; what it lost stays, and only grows, since a query may end before anybody looks.
"""

import os
from pathlib import Path
from typing import Final, TypeVar

from .stream_report import Report

T = TypeVar("T")

QUERIES_MAX: Final = 1000
"""Of more, those that were silent longest are left out, and what they lost is forgotten."""
_HELP: Final = {
    "lag_messages": ("gauge", "Messages that a query had still to read when its batch was planned"),
    "lost_messages_total": ("counter", "Messages that were gone before a query read them"),
    "batch_id": ("gauge", "The last batch that is durable"),
}


class StreamGauges:
    def __init__(self, path: Path) -> None:
        self._path = path
        self._last: dict[str, Report] = {}
        self._lost: dict[str, dict[str, int]] = {}
        """By query and topic."""

    def add(self, report: Report) -> None:
        _put_last(self._last, report.name, report)
        lost = self._lost.get(report.name, {})
        _put_last(self._lost, report.name, lost)
        for topic in report.lag_by_topic:
            lost.setdefault(topic, 0)
        for topic, count in report.lost_by_topic.items():
            lost[topic] = lost.get(topic, 0) + count
        self._write()

    def end(self, run_id: str) -> None:
        """A run of a query has ended."""
        ended = [name for name, report in self._last.items() if report.run_id == run_id]
        for name in ended:
            del self._last[name]
        if ended:
            self._write()

    def text(self) -> str:
        lines = {name: [] for name in _HELP}  # type: dict[str, list[str]]
        for name, report in self._last.items():
            lines["batch_id"].append(f"{_labels(query=name)} {report.batch_id}")
            for queue, count in report.lag.items():
                labels = _labels(
                    query=name, topic=queue.topic, broker=queue.broker_name, queue=queue.queue_id
                )
                lines["lag_messages"].append(f"{labels} {count}")
        for name, lost in self._lost.items():
            for topic, count in lost.items():
                lines["lost_messages_total"].append(f"{_labels(query=name, topic=topic)} {count}")
        return "".join(_family(name, lines[name]) for name in _HELP)

    def _write(self) -> None:
        temporary = self._path.with_name(f"{self._path.name}.{os.getpid()}.tmp")
        temporary.write_text(self.text(), encoding="utf-8")
        temporary.replace(self._path)


def _put_last(table: dict[str, T], name: str, value: T) -> None:
    """Behind all others; of too many, the first has to go."""
    table.pop(name, None)
    table[name] = value
    if len(table) > QUERIES_MAX:
        del table[next(iter(table))]


def _family(name: str, lines: list[str]) -> str:
    kind, help_text = _HELP[name]
    full = f"cometmq_spark_{name}"
    head = f"# HELP {full} {help_text}\n# TYPE {full} {kind}\n"
    return head + "".join(f"{full}{line}\n" for line in lines)


def _labels(**labels: object) -> str:
    return "{" + ",".join(f'{name}="{_quoted(value)}"' for name, value in labels.items()) + "}"


def _quoted(value: object) -> str:
    return str(value).replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
