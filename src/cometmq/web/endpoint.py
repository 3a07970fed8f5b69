"""A port that answers GET for a few pages. It runs in the loop of the server that it is about, so
that it can look at everything without a lock, and bounds what it spends on whoever asks.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from http import HTTPStatus
from typing import Final, cast

from cometmq.protocol.host import Host

from .requests import HEAD_BYTES_MAX, Answer, BadRequest, Request, RequestParser, encoded

log = logging.getLogger(__name__)
CONNECTIONS_MAX: Final = 64
PATIENCE_S: Final = 120.0
"""Of a connection without a request, or with an answer that nobody reads."""
Page = Callable[[], Awaitable[Answer]]
Pages = Mapping[str, Page]


class Endpoint:
    def __init__(self, pages: Pages) -> None:
        """`pages` has path → what to answer."""
        self._pages = pages
        self._visitors: set[_Visitor] = set()
        self._listener: asyncio.Server | None = None

    async def listen(self, host: str, port: int) -> Host:
        """Answer at an address; port 0 takes a free one. The address it got."""
        loop = asyncio.get_running_loop()
        self._listener = await loop.create_server(self._visitor, host, port)
        name = self._listener.sockets[0].getsockname()
        return Host(name[0], name[1])

    def stop(self) -> None:
        if self._listener is not None:
            self._listener.close()
        for visitor in list(self._visitors):
            visitor.hang_up()

    def _visitor(self) -> "_Visitor":
        return _Visitor(self._pages, self._visitors)


class _Visitor(asyncio.Protocol):
    """One connection; its requests are answered one after the other."""

    def __init__(self, pages: Pages, visitors: "set[_Visitor]") -> None:
        self._pages = pages
        self._visitors = visitors
        self._parser = RequestParser()
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._answering: asyncio.Task[None] | None = None
        self._patience: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports do what asyncio.Transport does without being one.
        self._transport = cast(asyncio.Transport, transport)
        self._visitors.add(self)
        self._wait()
        if len(self._visitors) > CONNECTIONS_MAX:
            self.hang_up()

    def data_received(self, data: bytes) -> None:
        self._parser.feed(data)
        if self._answering is None:
            self._look()
        elif self._parser.held_bytes > HEAD_BYTES_MAX and self._transport is not None:
            # Enough for the next request; who stops reading does not hear of who leaves.
            self._transport.pause_reading()

    def connection_lost(self, error: Exception | None) -> None:  # noqa: ARG002 - asyncio's call
        self._transport = None
        self._visitors.discard(self)
        if self._patience is not None:
            self._patience.cancel()
        if self._answering is not None:
            self._answering.cancel()

    def hang_up(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    def _wait(self) -> None:
        if self._patience is not None:
            self._patience.cancel()
        self._patience = self._loop.call_later(PATIENCE_S, self.hang_up)

    def _look(self) -> None:
        """Answer the next request, if it is there."""
        try:
            request = self._parser.next()
        except BadRequest as error:
            self._write(encoded(error.answer), keeps_alive=False)
            return
        if request is None or self._transport is None:
            return
        self._wait()
        self._answering = self._loop.create_task(self._answer(request))

    async def _answer(self, request: Request) -> None:
        page = self._pages.get(request.path)
        if page is None:
            known = " ".join(sorted(self._pages))
            answer = Answer(HTTPStatus.NOT_FOUND, f"not here; there is {known}\n".encode())
        else:
            try:
                answer = await page()
            except Exception:
                log.exception("%s could not be answered", request.path)
                answer = Answer(HTTPStatus.INTERNAL_SERVER_ERROR, b"see the server's log\n")
        self._answering = None
        keeps_alive = request.keeps_alive
        self._write(
            encoded(answer, is_head=request.is_head, keeps_alive=keeps_alive),
            keeps_alive=keeps_alive,
        )

    def _write(self, data: bytes, *, keeps_alive: bool) -> None:
        if self._transport is None or self._transport.is_closing():
            return
        self._transport.write(data)
        if keeps_alive:
            self._transport.resume_reading()
            self._look()
        else:
            self._transport.close()
