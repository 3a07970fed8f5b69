"""An acknowledged message survives whatever its flush mode says it survives."""

import asyncio
import errno
import os
import random
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from cometmq.store.config import FlushMode
from cometmq.store.errors import StoreError, StoreFailed
from cometmq.store.failure import EXIT_CODE
from cometmq.store.message_store import MessageStore
from cometmq.testing.disk import FailingDisk, PowerCutDisk

from .conftest import OpenStore
from .full_disk import CANNOT_MOUNT
from .stores import crash, fill, numbered, served_numbers, small_config

# `make chaos` asks for many; each begins with an empty store, so that none grows without end.
ROUNDS = range(int(os.environ.get("COMETMQ_CHAOS_ROUNDS", "1")))
KILLS = 6
POWER_CUTS = 12


def start_writer(root: Path, *arguments: str) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, "-m", "tests.store.writer", str(root), *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=Path(__file__).parents[2],
    )


@pytest.mark.parametrize("round_number", ROUNDS)
@pytest.mark.parametrize("mode", ["sync", "async"])
def test_killing_the_process_again_and_again_loses_no_acknowledged_message(
    tmp_path: Path, mode: str, round_number: int
) -> None:
    """With asynchronous flush too: the page cache outlives the process."""
    root = tmp_path / "store"
    chance = random.Random(f"{mode} {round_number}")
    acknowledged: set[int] = set()
    for _ in range(KILLS):
        with start_writer(root, mode) as writer:
            assert writer.stdout is not None
            first = writer.stdout.readline()
            time.sleep(chance.uniform(0.0, 0.4))
            os.kill(writer.pid, signal.SIGKILL)
            lines = [first, *writer.stdout]
        # The last line may be cut off by the kill.
        acknowledged |= {int(line) for line in lines if line.endswith("\n")}
        store = MessageStore(small_config(root))
        report = store.open()
        found = served_numbers(store)
        assert report.damaged == []
        assert found == list(range(len(found)))
        assert acknowledged <= set(found)
        sample = chance.sample(sorted(acknowledged), min(20, len(acknowledged)))
        for number in sample:
            by_key = store.query(numbered(number).topic, f"key-{number}")
            assert [m.flag for m in by_key] == [number]
        crash(store)
    assert len(acknowledged) > KILLS


@pytest.mark.parametrize("round_number", ROUNDS)
def test_a_power_cut_loses_no_message_acknowledged_after_a_sync(
    tmp_path: Path, round_number: int
) -> None:
    chance = random.Random(round_number)
    root = tmp_path / "life-0"
    acknowledged: set[int] = set()
    number = 0
    for life in range(POWER_CUTS):
        disk = PowerCutDisk()
        _remember_as_durable(disk, root)
        config = small_config(root, flush=FlushMode.SYNC, queue_flush_interval_ms=15)
        store = MessageStore(config, disk=disk)
        store.open()
        image = tmp_path / f"life-{life + 1}"
        cut = threading.Timer(
            chance.uniform(0.02, 0.3), disk.cut_power, (root, image, random.Random(chance.random()))
        )
        cut.start()
        try:
            while True:
                placed = store.append_all([numbered(n) for n in range(number, number + 5)])
                store.dispatch()
                number += 5
                store.wait_settled(placed[-1])
                acknowledged |= set(range(number - 5, number))
        except (StoreError, OSError):
            pass
        cut.join()
        crash(store)
        root = image
        survivor = MessageStore(small_config(root))
        report = survivor.open()
        found = served_numbers(survivor)
        assert acknowledged <= set(found), f"life {life}"
        assert report.damaged == []
        number = max(found, default=-1) + 1
        survivor.close()
    assert len(acknowledged) > POWER_CUTS


def _remember_as_durable(disk: PowerCutDisk, root: Path) -> None:
    """What an earlier life left on the disk is there for good."""
    if root.exists():
        disk._durable = {p: p.read_bytes() for p in root.rglob("*") if p.is_file()}


def test_the_power_cut_seam_does_lose_what_was_not_synced(tmp_path: Path) -> None:
    """Else the test above would prove nothing."""
    root, image = tmp_path / "store", tmp_path / "image"
    disk = PowerCutDisk()
    config = small_config(root, flush_interval_ms=60_000, queue_flush_interval_ms=60_000)
    store = MessageStore(config, disk=disk)
    store.open()
    for number in range(600):
        store.put(numbered(number))
    disk.cut_power(root, image, random.Random(1))
    crash_without_power(store)
    survivor = MessageStore(small_config(image))
    survivor.open()
    assert len(served_numbers(survivor)) < 600
    survivor.close()


def crash_without_power(store: MessageStore) -> None:
    try:
        crash(store)
    except StoreFailed:
        store._presence.leave(clean=False)


def test_a_failed_sync_acknowledges_nothing_and_stops_the_store(open_store: OpenStore) -> None:
    failures: list[StoreFailed] = []
    disk = FailingDisk()
    store = open_store(disk=disk, flush=FlushMode.SYNC, on_failure=failures.append)
    store.wait_settled(store.put(numbered(0)))
    disk.failing = True
    placed = store.put(numbered(1))
    with pytest.raises(StoreFailed, match=r"could not be made durable: .*Input/output error"):
        store.wait_settled(placed)
    assert store.flushed.value < placed.end
    with pytest.raises(StoreFailed, match="no more messages are taken"):
        store.append(numbered(2))
    assert served_numbers(store) == [0, 1]
    disk.failing = False
    with pytest.raises(StoreFailed):
        store.wait_settled(placed)
    assert len(failures) == 1
    store.close()
    assert (store.config.root / "abort").exists()


def test_a_failed_sync_of_a_queue_stops_the_store_too(open_store: OpenStore) -> None:
    class QueueDisk(FailingDisk):
        def sync(self, path: Path, fd: int) -> None:
            if "consumequeue" in path.parts:
                super().sync(path, fd)

    failures: list[StoreFailed] = []
    disk = QueueDisk()
    store = open_store(disk=disk, queue_flush_interval_ms=10, on_failure=failures.append)
    disk.failing = True
    store.put(numbered(0))
    with pytest.raises(StoreFailed, match="ConsumeQueues or index could not be made durable"):
        store.replicated.wait(1, 10_000)
    with pytest.raises(StoreFailed):
        store.append(numbered(1))
    assert len(failures) == 1
    assert served_numbers(store) == [0]


def test_a_server_ends_with_an_error_code_when_a_sync_fails(tmp_path: Path) -> None:
    with start_writer(tmp_path / "store", "sync", "fail-after", "40") as writer:
        output, errors = writer.communicate(timeout=60)
    assert writer.returncode == EXIT_CODE
    assert "could not be made durable" in errors
    assert [int(line) for line in output.splitlines()] == list(range(40))


def test_one_sync_serves_all_who_wait(open_store: OpenStore) -> None:
    class CountingDisk(FailingDisk):
        syncs = 0

        def sync(self, path: Path, fd: int) -> None:
            if "commitlog" in str(path):
                self.syncs += 1
                time.sleep(0.005)
            super().sync(path, fd)

    disk = CountingDisk()
    store = open_store(disk=disk, flush=FlushMode.SYNC, commit_log_file_bytes=1 << 20)

    async def write(writer: int) -> None:
        for number in range(10):
            placed = store.put(numbered(writer * 100 + number))
            await store.flushed.reached(placed.end, 5000)

    async def write_all() -> None:
        await asyncio.gather(*(write(writer) for writer in range(64)))

    disk.syncs = 0
    asyncio.run(write_all())
    assert len(served_numbers(store)) == 640
    assert disk.syncs < 100


def test_asynchronous_flush_follows_by_itself(open_store: OpenStore) -> None:
    store = open_store(flush_interval_ms=30)
    placed = store.put(numbered(0))
    store.flushed.wait(placed.end, 5000)
    assert store.flushed.value == placed.end


def test_untimed_asynchronous_flush_is_woken_by_the_append(open_store: OpenStore) -> None:
    store = open_store(flush_interval_ms=60_000, flush_timed=False)
    placed = store.put(numbered(0))
    store.flushed.wait(placed.end, 5000)
    assert store.flushed.value == placed.end


def test_a_full_disk_refuses_sends_serves_reads_and_recovers(tmp_path: Path) -> None:
    """On a small file system in memory, in a process of its own that may mount one."""
    if shutil.which("unshare") is None:
        pytest.skip("needs the program unshare, for a mount of its own")
    own_mounts = ["unshare", "--user", "--map-root-user", "--mount"]
    result = subprocess.run(
        [*own_mounts, sys.executable, "-m", "tests.store.full_disk", tmp_path],
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    if result.returncode == CANNOT_MOUNT or result.stderr.startswith("unshare:"):
        pytest.skip(f"no mount of its own here: {result.stderr.strip()}")
    assert (result.returncode, result.stdout.strip()) == (0, "ok"), result.stderr


def test_an_error_other_than_a_full_disk_is_not_taken_for_one(open_store: OpenStore) -> None:
    class BrokenDisk(FailingDisk):
        broken = False

        def create(self, path: Path, size: int, reserved: int) -> int:
            if self.broken and "commitlog" in str(path):
                raise OSError(errno.EROFS, os.strerror(errno.EROFS))
            return super().create(path, size, reserved)

    disk = BrokenDisk()
    store = open_store(disk=disk)
    store.put(numbered(0))
    store.commit_log._allocator.take(store.config.commit_log_file_bytes).delete()
    disk.broken = True
    with pytest.raises(StoreFailed, match="Read-only file system"):
        fill(store, 1000)
