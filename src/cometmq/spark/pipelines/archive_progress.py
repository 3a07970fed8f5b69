"""How an archive is getting on: what each batch had, and what all of them had."""

import msgspec

from .readable import counted, size


class BatchDone(msgspec.Struct, frozen=True):
    number: int
    rows: int
    bytes: int
    files: int
    seconds: float
    lag: dict[str, int]
    """Messages of each topic that were not archived when the batch was done."""

    def __str__(self) -> str:
        behind = sum(self.lag.values())
        rate = self.rows / max(self.seconds, 1e-3)
        return (
            f"batch {self.number}: {counted(self.rows, 'message')} in "
            f"{counted(self.files, 'file')}, {size(self.bytes)}, {rate:,.0f} a second; "
            + (f"{behind:,} to go ({_largest(self.lag)})" if behind else "nothing left to do")
        )


class Archived(msgspec.Struct):
    """All batches of one run."""

    lake: str
    format: str
    batches: int = 0
    rows: int = 0
    bytes: int = 0
    files: int = 0
    seconds: float = 0.0
    lag: dict[str, int] = {}

    def add(self, done: BatchDone) -> None:
        self.batches += 1
        self.rows += done.rows
        self.bytes += done.bytes
        self.files += done.files
        self.seconds += done.seconds
        self.lag = done.lag


def _largest(lag: dict[str, int]) -> str:
    """The topics that are furthest behind."""
    most = sorted(lag.items(), key=lambda item: (-item[1], item[0]))[:3]
    return ", ".join(f"{topic} {count:,}" for topic, count in most if count)
