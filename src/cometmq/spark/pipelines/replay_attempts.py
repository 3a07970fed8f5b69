"""Whether another attempt at the same task was there before.

Spark runs a task again when it fails, or when its worker is lost. What the first attempt has sent,
or is still sending, the second one was not told: it sends nothing, and leaves the rest to the
driver, which looks at the target once all is quiet.
"""

import asyncio

from cometmq.client.admin import Admin
from cometmq.client.cluster import Cluster
from cometmq.client.errors import TopicNotFound
from cometmq.protocol.message_queue import MessageQueue

from ..errors import SparkError
from ..sink.ids import BATCH_DIGITS
from ..topic.offsets import ByQueue, queue_text
from ..topic.patience import AWAY, patiently

AWAY_FOR_NOW = (*AWAY, TopicNotFound)
"""No NameServer knows the topics of a broker that is being started anew. What was not there in the
first place was told when the replay began."""
PARTITION_DIGITS = 5
"""Of an id behind those of its batch: the number of the source queue; the row's number is last."""


class BegunBefore(SparkError):
    """Another attempt at the task may have sent some of its messages."""


def check_attempt() -> None:
    from pyspark import TaskContext

    task = TaskContext.get()
    if task is not None and task.attemptNumber() > 0:
        raise BegunBefore(f"attempt {task.attemptNumber() + 1} at partition {task.partitionId()}")


class Present:
    """How many messages of each source queue are in the target when it is first asked.

    A stage that Spark runs anew counts its attempts from 0, and Python is not told which one it is;
    but the target can tell. For each of its queues a task asks once.
    """

    def __init__(self, cluster: Cluster, ids_begin: str, began_at: ByQueue) -> None:
        """`ids_begin`: how the ids of the step begin. `began_at`: where queues ended before it."""
        self._cluster = cluster
        self._ids_begin = ids_begin
        self._began_at = began_at
        self._found: dict[MessageQueue, dict[int, int]] = {}

    def check(self, source: int, queue: MessageQueue, known: int) -> None:
        """BegunBefore if there are more than those that the driver knows of."""
        if queue not in self._found:
            self._found[queue] = asyncio.run(self._look(queue))
        found = self._found[queue].get(source, 0)
        if found > known:
            raise BegunBefore(f"{queue.topic} {queue_text(queue)} has {found} of source {source}")

    async def _look(self, queue: MessageQueue) -> dict[int, int]:
        async with Admin(self._cluster) as admin:
            what = f"looking at {queue.topic} {queue_text(queue)}"
            return await patiently(lambda: self._counted(admin, queue), what, AWAY_FOR_NOW)

    async def _counted(self, admin: Admin, queue: MessageQueue) -> dict[int, int]:
        """They come in order, so the last one of each tells."""
        found: dict[int, int] = {}
        async for message in admin.messages.read(queue, start=self._began_at.get(queue, 0)):
            if message.message_id.startswith(self._ids_begin):
                source, row = place_of(message.message_id)
                found[source] = row + 1
        return found


def place_of(message_id: str) -> tuple[int, int]:
    """Number of the source queue, and of the row in it."""
    row_at = BATCH_DIGITS + PARTITION_DIGITS
    return int(message_id[BATCH_DIGITS:row_at], 16), int(message_id[row_at:], 16)
