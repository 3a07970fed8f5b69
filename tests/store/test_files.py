"""The small files around the log: checkpoint, lock, abort, and the JSON of `config`."""

import errno
import fcntl
import os
import shutil
from pathlib import Path

import msgspec
import pytest

from cometmq.protocol.fastjson import parse_json
from cometmq.protocol.message import Message
from cometmq.store.checkpoint import FILE_BYTES, Checkpoint, Marks
from cometmq.store.config import StoreConfig, parse_delay_levels
from cometmq.store.config_file import ConfigFile
from cometmq.store.consume_queue import ConsumeQueue
from cometmq.store.disk import Disk
from cometmq.store.errors import StoreLocked
from cometmq.store.message_store import MessageStore

from .conftest import OpenStore
from .stores import numbered, small_config


def test_a_checkpoint_comes_back_as_it_was_written() -> None:
    marks = Marks(log=5, queues=4, index=3, queue_entries=2, newest_index_items=1)
    checkpoint = Checkpoint(
        log_timestamp=9, queue_timestamp=8, index_timestamp=7, last_queued=6, marks=marks
    )
    content = checkpoint.encode()
    assert len(content) == FILE_BYTES
    assert Checkpoint.decode(content) == checkpoint


def test_rocketmqs_own_checkpoint_has_times_but_no_marks() -> None:
    theirs = (1_700_000_000_000).to_bytes(8, "big").ljust(FILE_BYTES, b"\0")
    assert Checkpoint.decode(theirs) == Checkpoint(log_timestamp=1_700_000_000_000)


@pytest.mark.parametrize("byte", range(0, 108, 5))
def test_marks_do_not_survive_a_changed_byte(byte: int) -> None:
    marks = Marks(log=5, queues=4, index=3, queue_entries=2, newest_index_items=1)
    content = bytearray(Checkpoint(log_timestamp=9, marks=marks).encode())
    content[byte] ^= 0x10
    assert Checkpoint.decode(bytes(content)).marks is None


def test_the_lock_is_the_one_that_java_takes(open_store: OpenStore) -> None:
    root = open_store().config.root
    assert (root / "lock").read_bytes() == b"lock"
    pid = os.fork()
    if pid == 0:
        fd = os.open(root / "lock", os.O_RDWR)
        try:
            fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 0)
        except OSError:
            os._exit(7)
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 7


def test_abort_names_the_process_and_goes_with_a_clean_stop(open_store: OpenStore) -> None:
    store = open_store()
    abort = store.config.root / "abort"
    assert abort.read_text() == str(os.getpid())
    store.close()
    assert not abort.exists()


def test_a_refused_second_store_does_not_loosen_the_lock_of_the_first(
    open_store: OpenStore,
) -> None:
    root = open_store().config.root
    for _ in range(2):
        with pytest.raises(StoreLocked):
            MessageStore(small_config(root)).open()


def test_a_locked_store_says_which_directory(open_store: OpenStore) -> None:
    root = open_store().config.root
    with pytest.raises(StoreLocked, match=str(root)):
        MessageStore(small_config(root)).open()


def test_a_config_file_keeps_its_last_version_as_backup(tmp_path: Path) -> None:
    file = ConfigFile(tmp_path / "config" / "topics.json")
    assert file.load() is None
    file.save({"version": 1})
    file.save({"version": 2})
    assert file.load() == {"version": 2}
    assert ConfigFile(file.backup).load() == {"version": 1}


@pytest.mark.parametrize("content", [b"", b"{", b'{"version": 2'])
def test_a_broken_config_file_falls_back_to_its_backup(tmp_path: Path, content: bytes) -> None:
    file = ConfigFile(tmp_path / "offsets.json")
    file.save({"version": 1})
    file.save({"version": 2})
    file.path.write_bytes(content)
    assert file.load() == {"version": 1}


def test_a_broken_config_file_without_backup_is_an_error(tmp_path: Path) -> None:
    file = ConfigFile(tmp_path / "offsets.json")
    file.path.write_bytes(b"{broken")
    with pytest.raises(msgspec.DecodeError):
        file.load()


def test_integer_keys_as_fastjson_writes_them_are_read() -> None:
    content = b'{"offsetTable":{"t@g, {0:1}":{0:12,1:-3, 22 :5}, "x\\"{3:":{}},\n"n":1}'
    assert parse_json(content) == {
        "offsetTable": {"t@g, {0:1}": {"0": 12, "1": -3, "22": 5}, 'x"{3:': {}},
        "n": 1,
    }


def test_a_file_that_could_not_be_replaced_stays_as_it_was(tmp_path: Path) -> None:
    class BrokenDisk(Disk):
        def write_whole(self, path: Path, content: bytes) -> None:
            raise OSError(28, "No space left on device")

    file = ConfigFile(tmp_path / "a.json")
    file.save([1])
    with pytest.raises(OSError, match="No space"):
        ConfigFile(file.path, BrokenDisk()).save([2])
    assert file.load() == [1]


def test_delay_levels_are_read_as_rocketmq_writes_them() -> None:
    assert parse_delay_levels("1s 5m 2h 1d") == (1000, 300_000, 7_200_000, 86_400_000)
    with pytest.raises(ValueError, match="'5x'"):
        parse_delay_levels("1s 5x")


@pytest.mark.parametrize(
    "wrong",
    [
        {"commit_log_file_bytes": 100},
        {"consume_queue_file_bytes": 30},
        {"index_slots": 0},
    ],
)
def test_settings_that_cannot_work_are_refused(tmp_path: Path, wrong: dict[str, int]) -> None:
    with pytest.raises(ValueError, match=next(iter(wrong))):
        StoreConfig(root=tmp_path, **wrong)  # type: ignore[arg-type]


def test_a_store_leaves_no_thread_and_no_descriptor_behind(open_store: OpenStore) -> None:
    open_store().close()
    before = descriptors()
    store = open_store()
    for number in range(500):
        store.put(numbered(number))
    store.close()
    assert descriptors() == before


def test_a_queue_takes_one_descriptor(open_store: OpenStore) -> None:
    store = open_store()
    store.put(Message("orders", 0, b"the log's own files are open now"))
    before = descriptors()
    for queue_id in range(1, 11):
        store.put(Message("orders", queue_id, b"one more queue"))
    assert descriptors() - before == 10


class NoFilesLeft(Disk):
    """Once, nothing can be opened; and it remembers what was synced."""

    def __init__(self) -> None:
        self.left = True
        self.synced: set[Path] = set()

    def sync(self, path: Path, fd: int) -> None:
        if not self.left:
            raise OSError(errno.EMFILE, "Too many open files", str(path))
        super().sync(path, fd)
        self.synced.add(path)


def test_a_queue_that_could_not_be_synced_is_synced_the_next_time(tmp_path: Path) -> None:
    disk = NoFilesLeft()
    queue = ConsumeQueue(tmp_path / "queue", 20 * 100, disk)
    queue.append(0, bytes(20))
    disk.left = False
    with pytest.raises(OSError, match="Too many open files"):
        queue.sync()
    disk.left = True
    assert queue.dirty
    queue.sync()
    assert [path.name for path in disk.synced] == ["0" * 20]
    assert not queue.dirty


def test_a_queue_deleted_while_it_is_synced_is_no_failure(tmp_path: Path) -> None:
    queue = ConsumeQueue(tmp_path / "queue", 20 * 100, Disk())
    queue.append(0, bytes(20))
    shutil.rmtree(tmp_path / "queue")
    queue.sync()
    assert not queue.dirty


def descriptors() -> int:
    return sum(1 for _ in Path("/proc/self/fd").iterdir())
