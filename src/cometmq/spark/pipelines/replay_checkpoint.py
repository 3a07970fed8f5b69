"""How far a replay is, in a directory that one run at a time may use."""

import contextlib
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import msgspec

from cometmq.store.disk import Disk

from ..errors import BadOption
from ..topic.offsets import Offsets
from .lake.lock import locked
from .replay_plan import Plan

_FILE: Final = "replay.json"
_LOCK: Final = "lock"
_FILE_URL: Final = re.compile(r"file:/(?://)?(?!/)")
_URL: Final = re.compile(r"file:|[a-z][a-z0-9+.-]*:/", re.IGNORECASE)


class Checkpoint(msgspec.Struct, frozen=True):
    plan: Plan
    step: int
    """The next one, or the one that is under way."""
    began_at: Offsets | None = None
    """Where the target's queues ended before the step; None: it has not begun."""
    sent: int = 0
    """By all steps before."""


class CheckpointDirectory:
    def __init__(self, directory: Path) -> None:
        self._file = directory / _FILE

    def load(self) -> Checkpoint | None:
        try:
            return msgspec.json.decode(self._file.read_bytes(), type=Checkpoint)
        except FileNotFoundError:
            return None
        except msgspec.MsgspecError as error:
            raise BadOption(f"{self._file} is no checkpoint of a replay: {error}") from None

    def save(self, checkpoint: Checkpoint) -> None:
        Disk().write_whole(self._file, msgspec.json.encode(checkpoint))


@contextlib.contextmanager
def checkpoint_directory(path: str) -> Iterator[CheckpointDirectory | None]:
    """None without a path. BadOption when another run has it, or when it lies elsewhere."""
    if not path:
        yield None
        return
    directory = _local(path)
    refusal = f"checkpoint: another replay is at work with {path}"
    with locked(directory / _LOCK, refusal):
        yield CheckpointDirectory(directory)


def _local(path: str) -> Path:
    local = _FILE_URL.sub("/", path, count=1)
    if _URL.match(local):
        raise BadOption(
            f"checkpoint: {path} is no directory of the machine that the replay is started on: "
            "say a path, or file:/ with one behind it"
        )
    return Path(local)
