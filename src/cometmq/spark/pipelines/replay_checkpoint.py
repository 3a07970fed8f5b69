"""How far a replay is, in a directory that one run at a time may use."""

import contextlib
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import msgspec

from cometmq.store.disk import Disk

from ..errors import BadOption
from ..topic.offsets import Offsets
from .replay_plan import Plan

_FILE: Final = "replay.json"
_LOCK: Final = "lock"


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
    """None without a path. BadOption when another run has it."""
    if not path:
        yield None
        return
    with _locked(Path(path)):
        yield CheckpointDirectory(Path(path))


@contextlib.contextmanager
def _locked(directory: Path) -> Iterator[None]:
    """Who is killed holds the lock no longer."""
    try:
        directory.mkdir(parents=True, exist_ok=True)
        number = os.open(directory / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    except OSError as error:
        raise BadOption(f"checkpoint: {error}") from None
    try:
        fcntl.flock(number, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(number)
        raise BadOption(f"checkpoint: another replay is at work with {directory}") from None
    try:
        yield
    finally:
        os.close(number)
