"""The consumer group that tells brokers how far the lake is.

Brokers with `archive.requiredBeforeDelete` keep what lies behind its offsets. A broker that is away
hears of them with a later batch, and the others do not wait for it; nor does a topic wait for one
that was deleted.
"""

import asyncio
import logging
from collections.abc import Collection
from typing import Self

from cometmq.client.admin import Admin
from cometmq.client.cluster import Cluster
from cometmq.client.errors import ClientError, GroupNotFound, TopicNotFound
from cometmq.transport.background import BackgroundLoop

from ..topic.group_commits import commit
from ..topic.offsets import ByQueue

log = logging.getLogger(__name__)
Refused = dict[str, ClientError]
"""By topic, why its offsets could not be committed."""


class ArchiveGroup:
    def __init__(self, cluster: Cluster, name: str) -> None:
        self._background = BackgroundLoop("cometmq-archive-group")
        self._admin = Admin(cluster)
        self._name = name
        self._gone: set[str] = set()

    def __enter__(self) -> Self:
        self._background.start()
        self._background.call(self._admin.start())
        return self

    def __exit__(self, *_: object) -> None:
        self._background.call(self._admin.stop())
        self._background.stop()

    def commit(self, offsets: ByQueue) -> None:
        """Everything before these offsets is in the lake."""
        self._background.call(self._commit(_by_broker(offsets)))

    # -- parts -----------------------------------------------------------------------------------

    async def _commit(self, parts: dict[str, ByQueue]) -> None:
        refused = await asyncio.gather(*(self._commit_at(*part) for part in parts.items()))
        for broker, why in zip(parts, refused, strict=True):
            self._tell(broker, why)

    async def _commit_at(self, broker: str, offsets: ByQueue) -> Refused:
        refused = await commit(self._admin, self._name, offsets)
        unknown = [topic for topic, why in refused.items() if isinstance(why, GroupNotFound)]
        if not unknown:
            return refused
        try:
            await self._admin.groups.create(self._name, brokers=[broker])
        except ClientError as error:
            return refused | dict.fromkeys(unknown, error)
        return await commit(self._admin, self._name, _of_topics(offsets, refused))

    def _tell(self, broker: str, refused: Refused) -> None:
        """Of a topic that was deleted once, and not with every batch."""
        gone = {topic for topic, why in refused.items() if isinstance(why, TopicNotFound)}
        for topic in refused.keys() - (gone & self._gone):
            log.warning(
                "group %s: %s does not know yet how far the archive is in topic %s: %s",
                self._name, broker, topic, refused[topic],
            )  # fmt: skip
        self._gone |= gone


def _by_broker(offsets: ByQueue) -> dict[str, ByQueue]:
    parts: dict[str, ByQueue] = {}
    for queue, offset in offsets.items():
        parts.setdefault(queue.broker_name, {})[queue] = offset
    return parts


def _of_topics(offsets: ByQueue, topics: Collection[str]) -> ByQueue:
    return {queue: offset for queue, offset in offsets.items() if queue.topic in topics}
