"""The consumer group that tells brokers how far the lake is.

Brokers with `archive.requiredBeforeDelete` keep what lies behind its offsets. A broker that is away
hears of them with a later batch or start, and the others do not wait for it.
"""

import logging
from typing import Self

from cometmq.client.admin import Admin
from cometmq.client.cluster import Cluster
from cometmq.transport.background import BackgroundLoop

from ..topic.group_commits import commit
from ..topic.offsets import ByQueue

log = logging.getLogger(__name__)


class ArchiveGroup:
    def __init__(self, cluster: Cluster, name: str) -> None:
        self._background = BackgroundLoop("cometmq-archive-group")
        self._admin = Admin(cluster)
        self._name = name

    def __enter__(self) -> Self:
        self._background.start()
        self._background.call(self._admin.start())
        return self

    def __exit__(self, *_: object) -> None:
        self._background.call(self._admin.stop())
        self._background.stop()

    def commit(self, offsets: ByQueue) -> None:
        """Everything before these offsets is in the lake."""
        refused = self._background.call(commit(self._admin, self._name, offsets))
        for topic, why in refused.items():
            log.warning(
                "group %s: not all brokers know yet how far the archive is in topic %s: %s",
                self._name, topic, why,
            )  # fmt: skip
