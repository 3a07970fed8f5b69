import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Protocol

import pytest

from cometmq.store.message_store import MessageStore

from .stores import small_config


class OpenStore(Protocol):
    def __call__(self, root: Path | None = None, **changes: Any) -> MessageStore: ...


@pytest.fixture
def memory_path(tmp_path: Path) -> Iterator[Path]:
    """A directory in memory where there is one: thousands of recoveries need no real disk."""
    shared_memory = Path("/dev/shm")
    if not os.access(shared_memory, os.W_OK):
        yield tmp_path
        return
    with tempfile.TemporaryDirectory(dir=shared_memory) as directory:
        yield Path(directory)


@pytest.fixture
def open_store(tmp_path: Path) -> Iterator[OpenStore]:
    """Opens small stores, and closes at the end those that a test left open."""
    opened: list[MessageStore] = []
    parts = ("host", "disk", "clock", "on_failure", "confirm_appended", "gate")

    def open_one(root: Path | None = None, **changes: Any) -> MessageStore:
        others = {name: changes.pop(name) for name in parts if name in changes}
        store = MessageStore(small_config(root or tmp_path / "store", **changes), **others)
        store.open()
        opened.append(store)
        return store

    yield open_one
    for store in opened:
        store.close()
