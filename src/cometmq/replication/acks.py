"""How many brokers must have a message before it is acknowledged. Pure: facts in, decision out.

Numbers count the master as one of its replicas, as RocketMQ's settings do.
"""

import dataclasses
from collections.abc import Iterable

from .errors import ReplicationError


class TooFewReplicas(ReplicationError):
    """The message must not be taken at all."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class AckPolicy:
    waits: bool = False
    """Whether slaves are waited for (`SYNC_MASTER`)."""
    in_sync_replicas: int = 1
    min_in_sync_replicas: int = 1
    adapts: bool = False
    """Do with fewer than `in_sync_replicas` where fewer are there, but not below the minimum
    (`enableAutoInSyncReplicas`)."""
    refuses: bool = False
    """Take no message that cannot reach as many (`enableSlaveActingMaster`)."""
    timeout_ms: int = 3000

    def needed(self, in_sync: int) -> int:
        """Replicas that must have a message, when so many could."""
        if not self.waits:
            return 1
        if self.refuses and self.adapts:
            return max(min(self.in_sync_replicas, in_sync), self.min_in_sync_replicas)
        return self.in_sync_replicas

    def require(self, in_sync: int) -> None:
        """TooFewReplicas when a message is not even to be taken."""
        if self.waits and self.refuses and self.needed(in_sync) > in_sync:
            raise TooFewReplicas(
                f"{in_sync} of {self.needed(in_sync)} replicas are in sync, the master counted"
            )


def replicated_offset(acknowledged: Iterable[int], needed: int) -> int:
    """How far `needed` replicas have the log, by what slaves acknowledged; 0 when too few have
    said anything. The master itself has all of it."""
    slaves = needed - 1
    highest = sorted(acknowledged, reverse=True)
    return highest[slaves - 1] if 0 < slaves <= len(highest) else 0
