"""A slave on the way to its master: finds it, checks that it is the right one, and follows.

Whatever ends a connection, it is tried again; what cannot be mended by trying again is said once a
minute, loudly.
"""

import asyncio
import logging
import ssl
import time
from collections.abc import Callable
from typing import Final

from cometmq.store.config import FlushMode
from cometmq.store.errors import StoreError
from cometmq.store.message_store import MessageStore
from cometmq.store.turns import LoopTurns
from cometmq.transport.connection import Connection
from cometmq.transport.dial import connect, split_address
from cometmq.transport.errors import TransportError

from .errors import LogsDiffer, ReplicationError
from .log_check import require_copy
from .master_link import MasterLink
from .pace import Pace

log = logging.getLogger(__name__)
RETRY_S: Final = 1.0
CONNECT_TIMEOUT_S: Final = 3.0
SAY_AGAIN_S: Final = 60.0


class Follower:
    def __init__(
        self,
        store: MessageStore,
        turns: LoopTurns,
        pace: Pace,
        *,
        ha_address: str = "",
        tls: ssl.SSLContext | None = None,
        retry_s: float = RETRY_S,
    ) -> None:
        """With `ha_address` the master's stream is there and nowhere else. `tls` is for requests,
        the stream has none."""
        self.on_change: Callable[[], None] = lambda: None
        """Called when the master was found or lost."""
        self.ha_address = ha_address
        self.master_address: str | None = None
        """Where the master answers requests; None when nobody has told."""
        self.trouble: Exception | None = None
        """Why this slave does not follow just now."""
        self.told_end: int | None = None
        """Where the master's log ended when it was last asked; None: it was not yet."""
        self._store = store
        self._turns = turns
        self._pace = pace
        self._is_fixed = bool(ha_address)
        self._tls = tls
        self._retry_s = retry_s
        self._link: MasterLink | None = None
        self._task: asyncio.Task[None] | None = None
        self._said: tuple[str, float] = ("", 0.0)

    @property
    def link(self) -> MasterLink | None:
        """The connection to the master, while there is one."""
        return self._link

    @property
    def is_following(self) -> bool:
        """Whether the master is there, as far as this slave can tell."""
        link = self._link
        return link is not None and link.is_open and link.heard > 0

    @property
    def behind(self) -> int | None:
        """Bytes of the master's log that are missing here, by the last it told; None when it has
        told nothing."""
        ends = [self.told_end, self._link.end if self._link is not None else None]
        known = [end for end in ends if end is not None]
        return max(max(known) - self._store.appended.value, 0) if known else None

    def tell_master(self, ha_address: str | None, master_address: str | None) -> None:
        """What a NameServer says. One that knows of no master may have just started: what was
        said before stays."""
        self.master_address = master_address or self.master_address
        if ha_address and not self._is_fixed and ha_address != self.ha_address:
            log.info("the master's replication address is %s", ha_address)
            self.ha_address = ha_address
            if self._link is not None:
                self._link.close()

    def start(self) -> None:
        self._task = asyncio.create_task(self._keep())

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _keep(self) -> None:
        while True:
            try:
                if self.ha_address:
                    await self._follow()
                self.trouble = None
            except (OSError, TransportError, ReplicationError, StoreError) as error:
                self.trouble = error
                self._say(error)
            await asyncio.sleep(self._retry_s)

    async def _follow(self) -> None:
        """Follow until the connection ends."""
        self.told_end = None
        is_checked = await self._check()
        if self._store.config.flush is FlushMode.SYNC:
            # The first report acknowledges all of the log.
            await asyncio.to_thread(self._store.flush)
        self._link = link = await self._connect(is_checked=is_checked)
        try:
            log.info(
                "following the master at %s from %d on", self.ha_address, self._store.appended.value
            )
            self.trouble = None
            self.on_change()
            await asyncio.shield(link.over)
            raise ReplicationError(f"the master at {self.ha_address} closed the connection")
        finally:
            self._link = None
            link.close()
            await asyncio.wait([link.over])
            self.on_change()

    async def dial(self, address: str) -> Connection:
        """A connection for requests to the master."""
        return await connect(address, tls=self._tls)

    async def _check(self) -> bool:
        """Whether our log was found to be the master's; LogsDiffer when it is not."""
        if self.master_address is None:
            return False
        connection = await self.dial(self.master_address)
        try:
            return await require_copy(connection, self._store)
        finally:
            connection.close()

    async def _connect(self, *, is_checked: bool) -> MasterLink:
        host, port = split_address(self.ha_address)
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(CONNECT_TIMEOUT_S):
                _, link = await loop.create_connection(
                    lambda: MasterLink(self._store, self._turns, self._pace, is_checked=is_checked),
                    host,
                    port,
                )
        except TimeoutError:
            raise ReplicationError(f"no master at {self.ha_address}: no answer") from None
        except OSError as error:
            raise ReplicationError(f"no master at {self.ha_address}: {error}") from error
        return link

    def _say(self, error: Exception) -> None:
        """The same only once a while."""
        text, now = str(error), time.monotonic()
        if text == self._said[0] and now - self._said[1] < SAY_AGAIN_S:
            return
        self._said = (text, now)
        if isinstance(error, LogsDiffer | StoreError):
            log.error("this slave does not follow its master: %s", error)
        else:
            log.warning("%s; trying again", error)
