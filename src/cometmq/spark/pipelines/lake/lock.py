"""Files that one process at a time has to itself, so that no two do the same work at once.

The kernel takes a lock from a process that ends, however it ends. What such a process had started
may live on without it: a descriptor is closed in a program that is started, and Spark's Python
processes are started by Java.
"""

import contextlib
import errno
import fcntl
import hashlib
import logging
import os
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Final

from ...errors import BadOption
from .place import Place

log = logging.getLogger(__name__)
TURN_S: Final = 60.0
"""For another archive to enter a batch, which takes it far less."""
_POLL_S: Final = 0.05
_ROOT: Final = "_locks"
_NO_LOCKS: Final = (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP)
"""From file systems that are mounted from elsewhere."""


def sole_writer(place: Place, checkpoint: str) -> AbstractContextManager[None]:
    """Have no other archive go on with this checkpoint meanwhile. Others, of other topics, may
    write into the lake."""
    name = hashlib.sha256(one_name(checkpoint).encode()).hexdigest()[:32]
    refusal = f"another archive writes this lake: {place.url}, with the checkpoint {checkpoint}"
    return _locked_in(place, name, refusal)


def turn_in(place: Place) -> AbstractContextManager[None]:
    """Have no other archive enter a topic into the lake meanwhile; one that does is waited for."""
    refusal = f"another archive has been entering topics into {place.url} for {TURN_S:g} s"
    return _locked_in(place, "topics", refusal, TURN_S)


def entry_in(place: Place) -> AbstractContextManager[None]:
    """Have no other archive enter a batch into the lake's table meanwhile, where the table itself
    would refuse the later one."""
    refusal = f"another archive has been entering a batch into {place.url} for {TURN_S:g} s"
    return _locked_in(place, "entries", refusal, TURN_S)


def sole_compaction(place: Place) -> AbstractContextManager[None]:
    """Have nobody else replace files meanwhile: Delta's log takes the same files as replaced twice,
    and has their rows twice from then on."""
    return _locked_in(place, "compaction", f"another compaction is at work in {place.url}")


def _locked_in(
    place: Place, name: str, refusal: str, wait_s: float = 0.0
) -> AbstractContextManager[None]:
    """A lake that is no local path has no locks."""
    if not place.is_local:
        return contextlib.nullcontext()
    return locked(Path(place.shown(f"{_ROOT}/{name}")), refusal, wait_s)


@contextlib.contextmanager
def locked(file: Path, refusal: str, wait_s: float = 0.0) -> Iterator[None]:
    """BadOption with the `refusal` when another one has the file for so long."""
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        number = os.open(file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
    except OSError as error:
        raise BadOption(str(error)) from None
    try:
        _lock(number, file, refusal, time.monotonic() + wait_s)
        yield
    finally:
        # Closed alone, it would stay locked while a child is about to start its program.
        with contextlib.suppress(OSError):
            fcntl.flock(number, fcntl.LOCK_UN)
        os.close(number)


def _lock(number: int, file: Path, refusal: str, deadline: float) -> None:
    try:
        while not _is_mine(number):
            if time.monotonic() >= deadline:
                raise BadOption(refusal)
            time.sleep(_POLL_S)
    except OSError as error:
        if error.errno not in _NO_LOCKS:
            raise
        log.warning("%s: %s; nothing but you keeps a second run away", file, error)


def _is_mine(number: int) -> bool:
    try:
        fcntl.flock(number, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def one_name(checkpoint: str) -> str:
    """The same for every way to write a path."""
    path = checkpoint.removeprefix("file:")
    return path.rstrip("/") if "://" in path else os.path.realpath(path)
