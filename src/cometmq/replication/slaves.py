"""All slaves of a master: where they connect, and how far enough of them have the log."""

import asyncio
import logging
from collections.abc import Callable, Iterator
from typing import Final

from cometmq.protocol.host import Host
from cometmq.store.errors import ReplicasMissing
from cometmq.store.message_store import MessageStore

from .acks import AckPolicy, replicated_offset
from .pace import Pace
from .slave_link import NOTHING, SlaveLink

log = logging.getLogger(__name__)
SLAVES_MAX: Final = 64
_CLOSE_POLL_S: Final = 0.005
_CLOSE_TIMEOUT_S: Final = 3.0
_DRAIN_TIMEOUT_S: Final = 3.0


class Slaves:
    def __init__(
        self,
        store: MessageStore,
        pace: Pace,
        policy: Callable[[], AckPolicy],
        gap_bytes: Callable[[], int],
    ) -> None:
        """`policy` says for whom is waited; a slave that is `gap_bytes` behind is not in sync."""
        self._store = store
        self._pace = pace
        self._policy = policy
        self._gap_bytes = gap_bytes
        self._links: set[SlaveLink] = set()
        self._listener: asyncio.Server | None = None
        self._warned = False

    async def listen(self, host: str, port: int) -> Host:
        """Take slaves at an address; port 0 takes a free one. The address it got."""
        loop = asyncio.get_running_loop()
        self._listener = await loop.create_server(self._link, host, port)
        name = self._listener.sockets[0].getsockname()
        return Host(name[0], name[1])

    async def stop(self, *, drains: bool = True) -> None:
        """Take nobody new and end; if it `drains`, slaves first get what is under way to them."""
        if self._listener is not None:
            self._listener.close()
        if drains:
            await self._drain()
        for link in list(self._links):
            link.close()
        loop = asyncio.get_running_loop()
        deadline = loop.time() + _CLOSE_TIMEOUT_S
        while self._links and loop.time() < deadline:
            await asyncio.sleep(_CLOSE_POLL_S)

    async def _drain(self) -> None:
        loop, end = asyncio.get_running_loop(), self._store.appended.value
        deadline = loop.time() + _DRAIN_TIMEOUT_S
        while loop.time() < deadline and any(
            self.is_in_sync(link) and link.acknowledged < end for link in self._links
        ):
            await asyncio.sleep(_CLOSE_POLL_S)

    def __iter__(self) -> Iterator[SlaveLink]:
        return iter(sorted(self._links, key=lambda link: link.peer))

    def is_in_sync(self, link: SlaveLink) -> bool:
        behind = self._store.appended.value - link.acknowledged
        return link.acknowledged != NOTHING and behind < self._gap_bytes()

    @property
    def in_sync(self) -> int:
        """Replicas that could have a message in time, the master counted."""
        return 1 + sum(map(self.is_in_sync, self._links))

    # -- who is waited for -----------------------------------------------------------------------

    def require(self) -> None:
        """TooFewReplicas when no message may be taken now."""
        self._policy().require(self.in_sync)

    def appended(self) -> None:
        """Each link watches the log's end by itself."""

    def wanted(self) -> bool:
        policy = self._policy()
        return policy.waits and policy.needed(self.in_sync) > 1

    def when_replicated(self, offset: int, future: "asyncio.Future[None]") -> None:
        policy, in_sync = self._policy(), self.in_sync
        needed = policy.needed(in_sync)
        if needed > in_sync and self._store.replicated.value < offset:
            self._warn(needed, in_sync)
            raise ReplicasMissing(f"{in_sync} of {needed} replicas are there, the master counted")
        self._warned = False
        self._store.replicated.when_reached(offset, policy.timeout_ms, future)

    def _warn(self, needed: int, in_sync: int) -> None:
        if not self._warned:
            log.warning("messages reach %d of %d replicas: a slave is missing", in_sync, needed)
        self._warned = True

    def _advance(self, _: SlaveLink) -> None:
        needed = self._policy().needed(self.in_sync)
        acknowledged = [link.acknowledged for link in self._links]
        self._store.replicated.advance(replicated_offset(acknowledged, needed))

    # -- who comes and goes ----------------------------------------------------------------------

    def _link(self) -> SlaveLink:
        return SlaveLink(
            self._store,
            self._pace,
            on_open=self._opened,
            on_report=self._advance,
            on_close=self._closed,
        )

    def _opened(self, link: SlaveLink) -> None:
        if len(self._links) >= SLAVES_MAX:
            log.error("slave %s refused: there are %d", link.peer, len(self._links))
            link.close()
        self._links.add(link)

    def _closed(self, link: SlaveLink) -> None:
        self._links.discard(link)
        if link.sent != NOTHING:
            log.warning("slave %s is gone; it had the log up to %d", link.peer, link.acknowledged)
