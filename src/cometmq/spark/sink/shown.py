"""Which half messages are in their topics already, so that they must not be shown again.

A message is the same only if id, body and properties are: a partition that is computed again behind
a shuffle may give the id to another row, which nobody has seen yet.
"""

import asyncio
import logging
from collections.abc import Collection
from typing import Final

from cometmq.client.admin import Admin
from cometmq.client.errors import TopicNotFound

from ..topic.patience import AWAY, patiently
from .halves import Half, row_crc

log = logging.getLogger(__name__)
LOOKS_AT_ONCE: Final = 32
INDEX_LAG_S: Final = 3.0
"""For so long a message may be stored before its broker finds it by its id, at most."""
_PAUSE_S: Final = 0.2


class Shown:
    def __init__(self, admin: Admin, patience_s: float) -> None:
        self._admin = admin
        self._patience_s = patience_s
        self._room = asyncio.Semaphore(LOOKS_AT_ONCE)

    async def among(self, halves: Collection[Half]) -> set[Half]:
        """Slow: brokers are asked about one at a time."""
        asked = list(halves)
        found = await asyncio.gather(*map(self._is_shown, asked))
        return {half for half, is_there in zip(asked, found, strict=True) if is_there}

    async def among_the_newest(self, halves: Collection[Half]) -> set[Half]:
        """The same where some may have come a moment ago."""
        now = asyncio.get_running_loop().time
        deadline = now() + INDEX_LAG_S
        found = await self.among(halves)
        while len(found) < len(halves) and now() < deadline:
            await asyncio.sleep(_PAUSE_S)
            found |= await self.among(set(halves) - found)
        return found

    async def _is_shown(self, half: Half) -> bool:
        async with self._room:
            found = await patiently(
                lambda: self._admin.messages.by_id(half.topic, half.unique_id),
                f"looking for {half.unique_id} in topic {half.topic}",
                (*AWAY, TopicNotFound), self._patience_s,
            )  # fmt: skip
        if any(row_crc(message.body, message.properties) == half.row_crc for message in found):
            return True
        if found:
            log.warning(
                "topic %s has another row by the id %s: the plan gives other rows, or another "
                "order, when it runs again; rows may come twice",
                half.topic, half.unique_id,
            )  # fmt: skip
        return False
