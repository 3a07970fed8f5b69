"""Jobs on Spark that have a command each: archive, replay, redrive, report.

Each is loaded when it is first asked for: the processes that Spark starts for an archive need
little of what is here, and no message is read before they have it.
"""

import importlib
import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from .archive import archive
    from .compaction import compact
    from .lake.reading import read_lake
    from .redrive import redrive
    from .replay import replay
    from .report import report

__all__ = ["archive", "compact", "read_lake", "redrive", "replay", "report"]
_MODULES: Final = {
    "archive": "archive",
    "compact": "compaction",
    "read_lake": "lake.reading",
    "redrive": "redrive",
    "replay": "replay",
    "report": "report",
}


class _Jobs(ModuleType):
    """Some jobs are called as their modules are. Who asks this package means the job, also when
    Python has just put the module there."""

    def __setattr__(self, name: str, value: object) -> None:
        if name in _MODULES and isinstance(value, ModuleType):
            value = getattr(value, name)
        super().__setattr__(name, value)


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f".{_MODULES[name]}", __name__), name)


sys.modules[__name__].__class__ = _Jobs
