"""When queues and index become durable, and what the checkpoint says of it."""

from pathlib import Path

import pytest

from cometmq.store import keeper
from cometmq.store.checkpoint import Marks, read_checkpoint
from cometmq.store.disk import Disk
from cometmq.store.message_store import MessageStore

from .conftest import OpenStore
from .stores import TOPICS, crash, fill

COUNT = 40
NEVER_MS = 3_600_000


class NotedDisk(Disk):
    """Notes the directory of each file that is synced."""

    def __init__(self) -> None:
        self.synced: list[str] = []

    def sync(self, path: Path, fd: int) -> None:
        self.synced.append(path.parent.name)
        super().sync(path, fd)


@pytest.fixture
def disk() -> NotedDisk:
    return NotedDisk()


@pytest.fixture
def store(open_store: OpenStore, disk: NotedDisk) -> MessageStore:
    """With messages that nobody has saved: its own thread does not, the tests do."""
    store = open_store(disk=disk, queue_flush_interval_ms=NEVER_MS)
    fill(store, COUNT)
    disk.synced.clear()
    return store


def marks(store: MessageStore) -> Marks:
    found = read_checkpoint(store.config.root / "checkpoint").marks
    assert found is not None
    return found


def test_the_index_stays_behind_until_it_is_due(store: MessageStore, disk: NotedDisk) -> None:
    before = marks(store)
    store._keeper.save(whole=False)
    after = marks(store)
    assert "index" not in disk.synced
    assert (after.index, after.newest_index_items) == (before.index, before.newest_index_items)
    assert after.queues == store.dispatched.value > before.queues
    store.close()
    assert "index" in disk.synced


@pytest.mark.parametrize("over", ["INDEX_INTERVAL_S", "INDEX_LOG_BYTES"])
def test_the_index_is_due_after_a_while_or_some_log(
    store: MessageStore, disk: NotedDisk, over: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(keeper, over, 0)
    store._keeper.save(whole=False)
    assert "index" in disk.synced
    assert marks(store).index == store.dispatched.value


def test_a_crash_with_an_index_that_is_behind_costs_no_key(
    store: MessageStore, open_store: OpenStore
) -> None:
    store._keeper.save()
    fill(store, COUNT, first=COUNT)
    store._keeper.save(whole=False)
    crash(store)
    again = open_store()
    for number in range(2 * COUNT):
        found = again.query(TOPICS[number % len(TOPICS)], f"key-{number}")
        assert [message.flag for message in found] == [number]
