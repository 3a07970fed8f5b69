"""Fills a small file system with a store, frees it and goes on: run by test_durability.

python -m tests.store.full_disk MOUNT_POINT
"""

import logging
import subprocess
import sys
import time
from pathlib import Path

from cometmq.store.config import StoreConfig
from cometmq.store.errors import DiskFull
from cometmq.store.message_store import MessageStore

from .stores import numbered, served_numbers, small_config

CANNOT_MOUNT = 77


def main(mount_point: Path) -> None:
    logging.basicConfig(level=logging.ERROR)
    command = ["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", str(mount_point)]
    if subprocess.run(command, check=False).returncode:
        sys.exit(CANNOT_MOUNT)
    ballast = mount_point / "ballast"
    ballast.write_bytes(bytes(2 * 1024 * 1024))
    config = small_config(
        mount_point / "store",
        commit_log_file_bytes=256 * 1024,
        # The marks of the disk's use are another test's matter: here it is really full.
        disk_expire_percent=100,
        disk_force_percent=100,
        disk_full_percent=100,
    )
    store = MessageStore(config)
    store.open()
    stored = fill_until_refused(store, 0)
    assert stored > 1000, stored
    # The last message may be in the log but find no space for its queue entry yet.
    assert served_numbers(store) in (list(range(stored)), list(range(stored - 1)))
    refused_again(store)
    ballast.unlink()
    time.sleep(1.1)
    assert fill_until_refused(store, stored) > stored + 1000
    store.close()
    assert len(served_after_restart(config)) > stored + 1000
    sys.stdout.write("ok\n")


def fill_until_refused(store: MessageStore, number: int) -> int:
    """Append until the disk is full; the number of the first message that was refused."""
    while True:
        try:
            store.append(numbered(number, 200))
        except DiskFull as refusal:
            if "No space left on device" not in str(refusal):
                raise
            return number
        store.dispatch()
        number += 1


def refused_again(store: MessageStore) -> None:
    try:
        store.append(numbered(0, 200))
    except DiskFull:
        return
    raise AssertionError("a full disk took a message")


def served_after_restart(config: StoreConfig) -> list[int]:
    store = MessageStore(config)
    store.open()
    numbers = served_numbers(store)
    assert numbers == list(range(len(numbers)))
    store.close()
    return numbers


if __name__ == "__main__":
    main(Path(sys.argv[1]))
