"""Deleting files that are over their time now, instead of when their hour comes.

It may take long, so it happens in a thread; the store's own housekeeping does the same there.
"""

import asyncio
import logging

from cometmq.protocol.codes import RequestCode
from cometmq.protocol.command import Command, Response
from cometmq.transport.connection import Connection, Handlers

from ..context import Context

log = logging.getLogger(__name__)


class CleanUp:
    def __init__(self, context: Context) -> None:
        self._context = context

    def handlers(self) -> Handlers:
        return {
            RequestCode.DELETE_EXPIRED_COMMITLOG: self.log_files,
            RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE: self.queue_files,
        }

    async def log_files(self, connection: Connection, _: Command) -> Response:
        deleted = await asyncio.to_thread(self._context.store.clean)
        log.info("%s: %d log files deleted", connection.peer, deleted)
        return Response()

    async def queue_files(self, connection: Connection, _: Command) -> Response:
        deleted = await asyncio.to_thread(self._context.store.clean_queues)
        log.info("%s: %d files of queues and index deleted", connection.peer, deleted)
        return Response()
