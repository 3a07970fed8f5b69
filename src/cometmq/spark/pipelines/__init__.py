"""Jobs on Spark that have a command each: archive, replay, redrive, report."""

from .archive import archive
from .compaction import compact
from .lake.reading import read_lake
from .redrive import redrive
from .replay import replay
from .report import report

__all__ = ["archive", "compact", "read_lake", "redrive", "replay", "report"]
