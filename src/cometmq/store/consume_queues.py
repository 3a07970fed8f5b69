"""All ConsumeQueues of a store, in `consumequeue/<topic>/<queue id>/`."""

import logging
import shutil
from collections.abc import Iterator

from cometmq.protocol.errors import IllegalMessage
from cometmq.protocol.names import check_topic
from cometmq.protocol.scan import queue_key, split_queue_key

from .config import StoreConfig
from .consume_queue import ConsumeQueue
from .disk import Disk

log = logging.getLogger(__name__)


class ConsumeQueues:
    def __init__(self, config: StoreConfig, disk: Disk) -> None:
        self._config = config
        self._disk = disk
        self._queues: dict[bytes, ConsumeQueue] = {}

    def load(self, physical_end: int) -> None:
        """Open all queues, keeping the entries of records below `physical_end`."""
        root = self._config.consume_queue_dir
        if not root.is_dir():
            return
        for directory in sorted(root.glob("*/*")):
            topic, queue_id = directory.parent.name, directory.name
            if directory.is_dir() and queue_id.isdigit() and _is_topic(topic):
                queue = self._make(queue_key(topic, int(queue_id)))
                queue.load(physical_end)
            else:
                log.warning("%s is no queue of ours and left alone", directory)

    @property
    def may_grow(self) -> bool:
        """Whether another queue may be opened. Each takes one of the files that this process may
        have, and a third of those is for connections."""
        return len(self._queues) < self._disk.files_allowed() * 3 // 5

    def get(self, key: bytes) -> ConsumeQueue | None:
        return self._queues.get(key)

    def get_or_make(self, key: bytes) -> ConsumeQueue:
        queue = self._queues.get(key)
        return queue if queue is not None else self._make(key)

    def entries(self) -> int:
        """Sum of all queues' ends."""
        return sum(queue.max_offset for queue in tuple(self._queues.values()))

    def cut(self, physical_end: int) -> None:
        for queue in self._queues.values():
            queue.cut(physical_end)

    def sync(self) -> None:
        """Make every queue durable that changed since the last time."""
        for queue in tuple(self._queues.values()):
            if queue.dirty:
                queue.sync()

    def expire(self, physical_start: int) -> int:
        return sum(queue.expire(physical_start) for queue in tuple(self._queues.values()))

    def physical_end(self) -> int:
        return max((queue.physical_end() for queue in self._queues.values()), default=0)

    def last_of_topic(self, topic: str) -> int:
        """Where the last record of a topic begins; -1 when it has none."""
        queues = (queue for key, queue in self if split_queue_key(key)[0] == topic)
        return max((queue.last_physical_offset() for queue in queues), default=-1)

    def delete_topic(self, topic: str) -> int:
        """Remove a topic's queues; how many there were."""
        doomed = [key for key in self._queues if split_queue_key(key)[0] == topic]
        for key in doomed:
            queue = self._queues.pop(key)
            queue.delete()
        shutil.rmtree(self._config.consume_queue_dir / check_topic(topic), ignore_errors=True)
        return len(doomed)

    def delete_all(self) -> None:
        """Forget all queues, because their log is gone."""
        self.close()
        shutil.rmtree(self._config.consume_queue_dir, ignore_errors=True)

    def close(self) -> None:
        for queue in self._queues.values():
            queue.close()
        self._queues.clear()

    def __iter__(self) -> Iterator[tuple[bytes, ConsumeQueue]]:
        return iter(tuple(self._queues.items()))

    def __len__(self) -> int:
        return len(self._queues)

    def _make(self, key: bytes) -> ConsumeQueue:
        topic, queue_id = split_queue_key(key)
        directory = self._config.consume_queue_dir / check_topic(topic) / str(queue_id)
        queue = ConsumeQueue(directory, self._config.consume_queue_file_bytes, self._disk)
        self._queues[key] = queue
        return queue


def _is_topic(name: str) -> bool:
    try:
        return bool(check_topic(name))
    except IllegalMessage:
        return False
