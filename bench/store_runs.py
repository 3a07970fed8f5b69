"""The store's measurements, each of which runs in a child process (see child.py).

CPU time of the calling thread is taken around the calls that count. What the store's own threads
(flush, housekeeping) burn is the process's CPU time less this thread's.
"""

import asyncio
import os
import shutil
import statistics
import time
from pathlib import Path

from cometmq.protocol import java
from cometmq.protocol.message import Message
from cometmq.store.checkpoint import read_checkpoint
from cometmq.store.config import MIB, FlushMode, StoreConfig
from cometmq.store.disk import Disk
from cometmq.store.message_store import MessageStore
from cometmq.store.reading import ReadStatus
from cometmq.store.turns import LoopTurns, Settled

from .child import serve
from .messages import BATCH, QUEUES, TAGS, TOPIC, batches, message
from .report import Figures

LOG_FILE_BYTES = 256 * MIB
SYNC_TIMEOUT_MS = 5000
SETTLE_S = 15.0
"""How long the housekeeping thread may take to bring the checkpoint up to date."""
RAW_WRITES = 400
RAW_WRITE_BYTES = 16 * 1024


def _config(root: str, *, seal: bool = True, flush: FlushMode = FlushMode.ASYNC) -> StoreConfig:
    return StoreConfig(
        root=Path(root),
        commit_log_file_bytes=LOG_FILE_BYTES,
        seal_records=seal,
        flush=flush,
        # A disk that others have filled is not what is measured here.
        disk_full_percent=100,
    )


class CpuClock:
    """CPU time of this thread, and of all the others in the process."""

    def __init__(self) -> None:
        self._thread_ns = time.thread_time_ns()
        self._process_ns = time.process_time_ns()

    def others_us(self) -> float:
        thread_ns = time.thread_time_ns() - self._thread_ns
        return (time.process_time_ns() - self._process_ns - thread_ns) / 1000


# -- append, dispatch, read -----------------------------------------------------------------------


def append_dispatch(root: str, count: int, seal: bool, reads_per_turn: int) -> Figures:
    store = MessageStore(_config(root, seal=seal))
    store.open()
    _write(store, count=BATCH * QUEUES, start=count)
    clock = CpuClock()
    append, dispatch = _write(store, count, start=0, reads_per_turn=reads_per_turn)
    store.flushed.wait(store.appended.value, SYNC_TIMEOUT_MS)
    background = clock.others_us() / count
    return {
        "append_dispatch": append + dispatch,
        "append": append,
        "dispatch": dispatch,
        "background": background,
    }


def _write(
    store: MessageStore, count: int, start: int, reads_per_turn: int = 1
) -> tuple[float, float]:
    """Append batch by batch and dispatch after so many; the CPU-µs a message of each, in the
    median batch.

    Making the messages is left out. The median, because the host takes memory away from this
    machine at will and some batches pay for getting it back.
    """
    append_ns: list[int] = []
    dispatch_ns: list[int] = []
    now = time.thread_time_ns
    for number, batch in enumerate(batches(count, start), 1):
        began = now()
        store.append_all(batch)
        appended = now()
        append_ns.append(appended - began)
        if number % reads_per_turn == 0:
            store.dispatch()
            dispatch_ns.append((now() - appended) // reads_per_turn)
    store.dispatch()
    append, dispatch = statistics.median(append_ns), statistics.median(dispatch_ns)
    return append / BATCH / 1000, dispatch / BATCH / 1000


def read(root: str, count: int) -> Figures:
    store = MessageStore(_config(root))
    store.open()
    _write(store, count, start=0)
    wanted = frozenset({java.string_hash(TAGS[0])})
    # The first pass takes the page faults of both, so that neither pays for the other.
    _read_all(store, None)
    everything = _read_all(store, None)
    filtered = _read_all(store, wanted)
    assert everything[1] == count
    assert abs(filtered[1] - count // len(TAGS)) <= QUEUES
    return {
        "read": everything[0] / everything[1] / 1000,
        "read_tag_quarter": filtered[0] / filtered[1] / 1000,
    }


def _read_all(store: MessageStore, tag_hashes: frozenset[int] | None) -> tuple[int, int]:
    """Read every queue to its end; CPU-ns and how many messages came."""
    count = 0
    began = time.thread_time_ns()
    for queue_id in range(QUEUES):
        offset, end = 0, store.max_offset(TOPIC, queue_id)
        while offset < end:
            got = store.read(TOPIC, queue_id, offset, count_max=BATCH, tag_hashes=tag_hashes)
            assert got.status in (ReadStatus.FOUND, ReadStatus.NO_MATCHED_MESSAGE)
            count += got.count
            offset = got.next_offset
    return time.thread_time_ns() - began, count


# -- recovery -------------------------------------------------------------------------------------


def crash(root: str, mib: int) -> Figures:
    """Write so much log, let the checkpoint catch up, write a little more and vanish."""
    store = MessageStore(_config(root))
    store.open()
    number = 0
    while store.appended.value < mib * MIB:
        _write(store, 100 * BATCH, start=number)
        number += 100 * BATCH
    _settle(store)
    _write(store, 100 * BATCH, start=number)
    store.flushed.wait(store.appended.value, SYNC_TIMEOUT_MS)
    return {"log_mib": store.appended.value / MIB}


def _settle(store: MessageStore) -> None:
    deadline = time.monotonic() + SETTLE_S
    while time.monotonic() < deadline:
        marks = read_checkpoint(store.config.root / "checkpoint").marks
        if marks is not None and min(marks.log, marks.queues) == store.appended.value:
            return
        time.sleep(0.02)
    raise TimeoutError("the checkpoint does not catch up with the log")


def recover(root: str, rebuild: bool) -> Figures:
    """Open a store whose last process vanished. Its log is in the page cache, just written.

    Once a store: pages of the empty rest that a first look brought in would count as data the
    next time.
    """
    if rebuild:
        shutil.rmtree(Path(root) / "consumequeue")
        shutil.rmtree(Path(root) / "index")
    store = MessageStore(_config(root))
    began = time.monotonic()
    report = store.open()
    opened_s = time.monotonic() - began
    assert not report.clean
    assert not report.damaged
    assert report.queues_rebuilt is rebuild
    log_mib = (report.log_end - report.log_start) / MIB
    # Verified is from the file of the lowest mark on, so not all of the log without a rebuild.
    walked_mib = log_mib if rebuild else report.verified_bytes / MIB
    return {
        "mib_per_s": walked_mib / report.seconds,
        "s_per_gib": report.seconds / walked_mib * 1024,
        "seconds": report.seconds,
        "opened_s": opened_s,
        "verified_mib": report.verified_bytes / MIB,
        "dispatched_mib": report.dispatched_bytes / MIB,
    }


# -- sync flush -----------------------------------------------------------------------------------


class CountingDisk(Disk):
    """Counts the CommitLog's syncs and the time they take."""

    def __init__(self) -> None:
        self.syncs = 0
        self.seconds = 0.0

    def sync(self, path: Path, fd: int) -> None:
        began = time.monotonic()
        super().sync(path, fd)
        if path.parent.name == "commitlog":
            self.syncs += 1
            self.seconds += time.monotonic() - began


def sync_flush(root: str, writers: int, seconds: float) -> Figures:
    """So many tasks of one event loop, each with one message under way. 0: a blocking thread."""
    disk = CountingDisk()
    store = MessageStore(_config(root, flush=FlushMode.SYNC), disk=disk)
    store.open()
    _one_blocking(store, message(0))
    disk.syncs, disk.seconds = 0, 0.0
    cpu_began, began = time.process_time(), time.monotonic()
    if writers:
        count = asyncio.run(_write_tasks(store, writers, began + seconds))
    else:
        count = _write_blocking(store, began + seconds)
    elapsed = time.monotonic() - began
    return {
        "msgs_per_s": count / elapsed,
        "cpu_us_per_msg": (time.process_time() - cpu_began) / count * 1e6,
        "msgs_per_sync": count / disk.syncs,
        "sync_us": disk.seconds / disk.syncs * 1e6,
        "cycle_us": elapsed / disk.syncs * 1e6,
    }


async def _write_tasks(store: MessageStore, writers: int, deadline: float) -> int:
    """Each writer appends its next message when the last one is settled, as a broker's handler
    does: by a call-back, without a task of its own."""
    turns = LoopTurns(store)
    done = asyncio.get_running_loop().create_future()
    count, running = 0, writers

    def write(each: Message, settled: Settled) -> None:
        nonlocal count, running
        if time.monotonic() < deadline:
            count += 1
            store.append(each)
            turns.appended(settled)
            return
        running -= 1
        if not running:
            done.set_result(None)

    def start(each: Message) -> None:
        def settled(_: BaseException | None) -> None:
            write(each, settled)

        write(each, settled)

    for number in range(writers):
        start(message(number))
    await done
    return count


def _write_blocking(store: MessageStore, deadline: float) -> int:
    number = 0
    while time.monotonic() < deadline:
        _one_blocking(store, message(number))
        number += 1
    return number


def _one_blocking(store: MessageStore, each: Message) -> None:
    appended = store.append(each)
    store.dispatch()
    store.wait_settled(appended)


def raw_sync(root: str) -> Figures:
    """What the disk itself takes: into blocks never written, as a new log file's, and again."""
    fd = os.open(Path(root) / "raw", os.O_RDWR | os.O_CREAT, 0o600)
    os.posix_fallocate(fd, 0, RAW_WRITES * RAW_WRITE_BYTES)
    os.fsync(fd)
    return {"new_us": _raw_us(fd), "written_us": _raw_us(fd)}


def _raw_us(fd: int) -> float:
    """Median of a write and its sync."""
    data = b"x" * RAW_WRITE_BYTES
    took = []
    for number in range(RAW_WRITES):
        began = time.monotonic()
        os.pwrite(fd, data, number * RAW_WRITE_BYTES)
        os.fdatasync(fd)
        took.append(time.monotonic() - began)
    return sorted(took)[RAW_WRITES // 2] * 1e6


if __name__ == "__main__":
    serve(
        {
            "append_dispatch": append_dispatch,
            "read": read,
            "crash": crash,
            "recover": recover,
            "sync_flush": sync_flush,
            "raw_sync": raw_sync,
        }
    )
