"""Everything that operators do to a cluster, as coroutines: `await admin.topics.create("orders")`.

An admin is no member of any group: what it reads leaves no trace at the brokers. Calls to several
brokers run side by side; one that does not answer fails the call with its name. It holds no state
but its connections, and asks for the cluster anew each time.
"""

from types import TracebackType
from typing import Self

from ..cluster import Cluster, cluster_at
from ..link import Link
from .brokers import Brokers
from .groups import Groups
from .members import Members
from .messages import Messages
from .namesrvs import Namesrvs
from .offsets import Offsets
from .reach import Reach
from .topics import Topics


class Admin:
    """`async with Admin("127.0.0.1:9876") as admin:`"""

    def __init__(self, cluster: str | Cluster, *, client_id: str = "") -> None:
        self._link = Link(cluster_at(cluster), client_id=client_id)
        reach = Reach(self._link)
        self.brokers = Brokers(reach)
        self.namesrvs = Namesrvs(reach)
        self.topics = Topics(reach, self.namesrvs)
        self.members = Members(reach)
        self.groups = Groups(reach, self.topics)
        self.offsets = Offsets(reach)
        self.messages = Messages(reach, self.offsets)

    async def start(self) -> None:
        """Connections are made when they are first needed."""
        self._link.start()

    async def stop(self) -> None:
        await self._link.stop()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.stop()
