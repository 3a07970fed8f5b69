"""Which half messages are in their topics already, so that they must not be shown again.

A message is the same only if id, body and properties are: a partition that is computed again behind
a shuffle may give the id to another row, which nobody has seen yet.

Who asks names the brokers that may have them. One that is not registered now is waited for: the
route of the topic would leave it out, and what it has shown would be taken for never shown.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Sequence
from typing import Final, TypeVar

from cometmq.client.admin.messages import found_by_id
from cometmq.client.admin.reach import BrokerNode, Reach
from cometmq.client.errors import NoRoute
from cometmq.client.link import Link
from cometmq.client.received import ReceivedMessage
from cometmq.protocol.routes import MASTER_ID

from ..topic.patience import patiently
from .halves import Half, row_crc

log = logging.getLogger(__name__)
T = TypeVar("T")
LOOKS_AT_ONCE: Final = 32
INDEX_LAG_S: Final = 3.0
"""For so long a message may be stored before its broker finds it by its id, at most."""
_PAUSE_S: Final = 0.2


class Shown:
    def __init__(self, link: Link, patience_s: float) -> None:
        self._reach = Reach(link)
        self._patience_s = patience_s
        self._room = asyncio.Semaphore(LOOKS_AT_ONCE)

    async def among(self, halves: Collection[Half], brokers: Collection[str]) -> set[Half]:
        """Slow: these brokers are asked about one at a time."""
        if not halves:
            return set()
        asked, what = list(halves), f"looking for brokers {', '.join(sorted(brokers))}"
        masters = await self._patiently(lambda: self._masters(brokers), what)
        looks = (self._is_shown(half, brokers, masters) for half in asked)
        found = await asyncio.gather(*looks)
        return {half for half, is_there in zip(asked, found, strict=True) if is_there}

    async def among_the_newest(
        self, halves: Collection[Half], brokers: Collection[str]
    ) -> set[Half]:
        """The same where some may have come a moment ago."""
        now = asyncio.get_running_loop().time
        deadline = now() + INDEX_LAG_S
        found = await self.among(halves, brokers)
        while len(found) < len(halves) and now() < deadline:
            await asyncio.sleep(_PAUSE_S)
            found |= await self.among(set(halves) - found, brokers)
        return found

    async def _is_shown(
        self, half: Half, brokers: Collection[str], masters: Sequence[BrokerNode]
    ) -> bool:
        first = [masters]

        async def look() -> list[ReceivedMessage]:
            """Once more, others may be the masters."""
            nodes = first.pop() if first else await self._masters(brokers)
            return await found_by_id(self._reach, nodes, half.topic, half.unique_id)

        async with self._room:
            what = f"looking for {half.unique_id} in topic {half.topic}"
            found = await self._patiently(look, what)
        if any(row_crc(message.body, message.properties) == half.row_crc for message in found):
            return True
        if found:
            log.warning(
                "topic %s has another row by the id %s: the plan gives other rows, or another "
                "order, when it runs again; rows may come twice",
                half.topic, half.unique_id,
            )  # fmt: skip
        return False

    async def _patiently(self, work: Callable[[], Awaitable[T]], what: str) -> T:
        return await patiently(work, what, patience_s=self._patience_s)

    async def _masters(self, brokers: Collection[str]) -> list[BrokerNode]:
        nodes = await self._reach.nodes()
        masters = {node.name: node for node in nodes if node.broker_id == MASTER_ID}
        if away := sorted(set(brokers) - masters.keys()):
            raise NoRoute(f"no master is known now of {', '.join(away)}, where it may be shown")
        return [masters[name] for name in brokers]
