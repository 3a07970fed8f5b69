"""What the runs gave, as lines for programs and as the table of docs/performance.md."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from .. import report
from ..report import Figures, Line, line, median, shown

KAFKA = "Spark's Kafka connector"
PURE = "plain Python"
_HEAD = (
    "| | rows/s: ours | Kafka's | ratio | by rounds | aim | CPU-µs a row: ours + broker "
    "| Kafka's + broker | plain Python, rows/s | load |\n"
    "|---|---:|---:|---:|---|---:|---:|---:|---:|---:|"
)


@dataclass
class Row:
    """The runs of one case."""

    name: str
    aim: float | None
    ours: list[Figures] = field(default_factory=list)
    kafka: list[Figures] = field(default_factory=list)
    pure: list[Figures] = field(default_factory=list)
    loads: list[float] = field(default_factory=list)

    @property
    def ratio(self) -> float:
        return median(self.ours, "rows_per_s") / median(self.kafka, "rows_per_s")

    @property
    def ratios(self) -> list[float]:
        """Round by round."""
        rounds = zip(self.ours, self.kafka, strict=True)
        return [ours["rows_per_s"] / kafka["rows_per_s"] for ours, kafka in rounds]


def lines(row: Row) -> Iterator[Line]:
    for unit in ("rows_per_s", "cpu_us_per_row", "broker_cpu_us_per_row"):
        yield line(row.name, median(row.ours, unit), median(row.kafka, unit), unit, KAFKA)
    if row.aim:
        yield line(row.name, row.ratio, row.aim, "ratio", "aim")
    if row.pure:
        yield line(
            row.name, median(row.ours, "rows_per_s"), median(row.pure, "rows_per_s"),
            "rows_per_s", PURE,
        )  # fmt: skip


def markdown(rows: Sequence[Row], decoded: Sequence[Line]) -> str:
    runs = [_HEAD, *(f"| {' | '.join(_cells(row))} |" for row in rows)]
    return "\n".join([*runs, "", report.markdown(decoded)])


def _cells(row: Row) -> tuple[str, ...]:
    return (
        f"`{row.name}`",
        shown(median(row.ours, "rows_per_s")),
        shown(median(row.kafka, "rows_per_s")),
        f"{row.ratio:.2f}",
        ", ".join(f"{ratio:.2f}" for ratio in row.ratios),
        f"≥ {row.aim}" if row.aim else "",
        _cpu(row.ours),
        _cpu(row.kafka),
        shown(median(row.pure, "rows_per_s")) if row.pure else "",
        f"{min(row.loads):.1f} to {max(row.loads):.1f}",
    )


def _cpu(runs: Sequence[Figures]) -> str:
    """Of the Spark process with all that it starts, and of the broker."""
    medians = (median(runs, unit) for unit in ("cpu_us_per_row", "broker_cpu_us_per_row"))
    return " + ".join(shown(figure) for figure in medians)
