"""The consumer group that tells brokers how far the lake is.

Brokers with `archive.requiredBeforeDelete` keep what lies behind its offsets. A broker that is away
hears of them with a later batch, and the others do not wait for it.
"""

import logging
from collections.abc import Mapping
from typing import Self

from cometmq.client.blocking import Admin
from cometmq.client.cluster import Cluster
from cometmq.client.errors import ClientError, GroupNotFound
from cometmq.protocol.message_queue import MessageQueue

from ..topic.offsets import ByQueue

log = logging.getLogger(__name__)


class ArchiveGroup:
    def __init__(self, cluster: Cluster, name: str) -> None:
        self._admin = Admin(cluster)
        self._name = name

    def __enter__(self) -> Self:
        self._admin.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._admin.stop()

    def commit(self, offsets: ByQueue) -> None:
        """Everything before these offsets is in the lake."""
        for broker, part in _by_broker(offsets).items():
            try:
                self._commit_at(broker, part)
            except ClientError as error:
                log.warning(
                    "group %s: %s does not know yet how far the archive is: %s",
                    self._name, broker, error,
                )  # fmt: skip

    def _commit_at(self, broker: str, offsets: Mapping[MessageQueue, int]) -> None:
        try:
            self._admin.offsets.commit(self._name, offsets)
        except GroupNotFound:
            self._admin.groups.create(self._name, brokers=[broker])
            self._admin.offsets.commit(self._name, offsets)


def _by_broker(offsets: ByQueue) -> dict[str, ByQueue]:
    parts: dict[str, ByQueue] = {}
    for queue, offset in offsets.items():
        parts.setdefault(queue.broker_name, {})[queue] = offset
    return parts
