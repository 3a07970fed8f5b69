"""Which ranges a task of the archive reads: large ones alone, small ones of a topic together.

Pure. A file per queue and batch would be a great many small files.
"""

from collections.abc import Iterable
from typing import Final

from ..topic.offsets import QueueRange

BUNDLE_ROWS_MIN: Final = 250_000
"""Enough for a task; what comes behind goes to the next one."""


def bundled(ranges: Iterable[QueueRange]) -> list[list[QueueRange]]:
    """All ranges, in their order, each bundle of one topic."""
    bundles: list[list[QueueRange]] = []
    rows = 0
    for part in ranges:
        if bundles and bundles[-1][0].queue.topic == part.queue.topic and rows < BUNDLE_ROWS_MIN:
            bundles[-1].append(part)
        else:
            bundles.append([part])
            rows = 0
        rows += part.size
    return bundles
