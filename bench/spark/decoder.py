"""The decoder by itself: bytes of a log to columns. Runs in a process of its own (see child.py).

CPU time is that of the thread. `pull` is what a task does with an answer, `log` what it does with a
piece of a file: there, each record's checksums are verified, too.
"""

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

from cometmq.protocol.hot import ColumnBuilder
from cometmq.protocol.scan import Stop
from cometmq.spark.arrow import ROWS_MAX
from cometmq.spark.log.reading import CHUNK_BYTES

from ..child import serve
from ..report import Figures

READ_BYTES: Final = 64 << 20
ROUNDS: Final = 5


def decode(store: str, columns: str, log: bool, share: float) -> Figures:
    """Records a second and core, in the best of some rounds over the same bytes."""
    first = min((Path(store) / "commitlog").iterdir())
    with first.open("rb") as file:
        chunks = list(_chunks(file.read(int(READ_BYTES * share))))
    builder = ColumnBuilder(columns.split(","))
    take = _walked(builder) if log else _added(builder)
    best = max(_round(builder, take, chunks) for _ in range(ROUNDS))
    return {"records_per_cpu_s": best}


Taken = Callable[[int, bytes], None]


def _round(builder: ColumnBuilder, take: Taken, chunks: list[tuple[int, bytes]]) -> float:
    count, began = 0, time.thread_time()
    for base, chunk in chunks:
        take(base, chunk)
        if builder.count >= ROWS_MAX:
            count += builder.count
            builder.take()
    count += builder.count
    builder.take()
    return count / (time.thread_time() - began)


def _added(builder: ColumnBuilder) -> Taken:
    return lambda _, chunk: _all_taken(builder.add(chunk) > 0)


def _walked(builder: ColumnBuilder) -> Taken:
    def take(base: int, chunk: bytes) -> None:
        view = memoryview(chunk)
        _all_taken(builder.walk(view, 0, len(view), base).stop is Stop.END)

    return take


def _all_taken(taken: bool) -> None:
    if not taken:
        raise ValueError("the log has something that is no record")


def _chunks(log: bytes) -> Iterator[tuple[int, bytes]]:
    """Whole records, as many as a task reads at once, and where they begin."""
    begin = end = 0
    while size := int.from_bytes(log[end : end + 4], "big"):
        if end + size > len(log):
            break
        if end + size - begin > CHUNK_BYTES:
            yield begin, log[begin:end]
            begin = end
        end += size
    if begin < end:
        yield begin, log[begin:end]


if __name__ == "__main__":
    serve({"decode": decode})
