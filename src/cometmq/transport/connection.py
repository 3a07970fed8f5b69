"""One connection: frames in, answers out, requests of our own.

All frames of one read are handled together and their answers leave in one write. A peer that does
not read its answers is not listened to until it does: what is unsent, what is unhandled and how
many requests wait are all bounded by `Limits`.
"""

import asyncio
import logging
import ssl
import time
from collections import deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Final, cast

from cometmq.protocol.codes import ResponseCode
from cometmq.protocol.command import (
    Command,
    FrameParser,
    MalformedFields,
    MalformedFrame,
    Request,
    Response,
    encode_request,
    encode_response,
)
from cometmq.protocol.host import Host

from .errors import ConnectionClosed, RequestTimeout, TransportError
from .latencies import Latencies
from .limits import Limits
from .tls import HANDSHAKE_RECORD, TlsSession

log = logging.getLogger(__name__)

Answer = Response | Awaitable[Response | None] | None
"""At once, when an awaitable is through, or (None) by `Connection.answer`."""
Handler = Callable[["Connection", Command], Answer]
"""Answers a request."""
Handlers = Mapping[int, Handler]
Express = Callable[["Connection", bytes], int]
"""Takes the frames that some bytes begin with as long as it knows what to do with all of them at
once, sees to their answers, and tells where it stopped; the rest goes to handlers."""
REMARK_CHARS_MAX: Final = 512
PIECE_BYTES_MIN: Final = 16 << 10
"""Pieces that are larger in the middle leave as they are; to put small ones together costs less."""
_OPAQUE_MAX: Final = 2**31 - 1


class Refusal(Exception):
    """A request that a handler does not fulfil: the answer's code and what to tell the peer."""

    def __init__(self, code: int, remark: str, fields: Mapping[str, str] | None = None) -> None:
        super().__init__(remark)
        self.response = Response(code, remark, fields or {})


class Connection(asyncio.Protocol):
    def __init__(
        self,
        handlers: Handlers,
        limits: Limits,
        *,
        tls: ssl.SSLContext | None = None,
        tls_required: bool = False,
        express: Express | None = None,
        on_open: Callable[["Connection"], None] | None = None,
        on_close: Callable[["Connection"], None] | None = None,
        latencies: Latencies | None = None,
    ) -> None:
        self.peer = Host("", 0)
        self.local = Host("", 0)
        self.last_active = 0.0
        self.state: dict[str, Any] = {}
        """What handlers remember about this peer."""
        self._handlers = handlers
        self._limits = limits
        self._tls_context = tls
        self._tls_required = tls_required
        self._tls: TlsSession | None = None
        self._express = express
        self._on_open = on_open
        self._on_close = on_close
        self._latencies = latencies
        self._parser = FrameParser(limits.frame_bytes_max)
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._begun = False
        self._output: list[bytes] = []
        self._output_bytes = 0
        self._flush_planned = False
        self._paused = False
        self._flowing = asyncio.Event()
        self._flowing.set()
        self._unhandled: deque[Command] = deque()
        self._pending: dict[int, tuple[asyncio.Future[Command], asyncio.TimerHandle]] = {}
        self._opaque = 0
        self._tasks: set[asyncio.Task[None]] = set()
        self._wrong = ""
        """Why we closed it, if the peer said something that cannot be."""

    def __repr__(self) -> str:
        return f"<Connection {self.peer}>"

    @property
    def is_open(self) -> bool:
        return self._transport is not None and not self._transport.is_closing()

    @property
    def is_busy(self) -> bool:
        """Whether an answer is still owed or under way."""
        return bool(self._tasks or self._unhandled or self._output or self._unsent())

    # -- the event loop's side -------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports do what asyncio.Transport does without being one.
        transport = cast(asyncio.Transport, transport)
        self._transport = transport
        self.peer = _host(transport.get_extra_info("peername"))
        self.local = _host(transport.get_extra_info("sockname"))
        self.last_active = self._loop.time()
        transport.set_write_buffer_limits(self._limits.output_bytes_high)
        if self._on_open is not None:
            self._on_open(self)

    def data_received(self, data: bytes) -> None:
        commands, wrong = self._read(data)
        if commands:
            self._take(commands)
        if wrong:
            self._wrong = wrong
            log.warning("%s closed: %s", self.peer, wrong)
        if wrong or (self._tls is not None and self._tls.has_ended):
            self.close()

    def _read(self, data: bytes) -> tuple[Sequence[Command], str]:
        """The commands that are complete, and what is wrong with what follows them."""
        try:
            if not self._begun:
                self._begin(data)
            if self._tls is not None:
                data = self._tls.decrypt(data)
                self._write_encrypted()
            # Nobody overtakes those who wait already.
            may_hurry = self._express is not None and not self._unhandled and not self._is_full
            return self._parser.feed(data, self._hurry if may_hurry else None), ""
        except MalformedFrame as error:
            return error.before, str(error)
        except ssl.SSLError as error:
            self._write_encrypted()  # The alert that tells the peer why.
            return (), f"TLS failed: {error.reason or error}"

    def _hurry(self, data: bytes) -> int:
        assert self._express is not None
        end = self._express(self, data)
        if end:
            self.last_active = self._loop.time()
        return end

    def _take(self, commands: Sequence[Command]) -> None:
        self.last_active = self._loop.time()
        if self._latencies is not None:
            now = time.monotonic()
            for command in commands:
                command.received = now
        for command in commands:
            if command.is_response:
                self._take_response(command)
            else:
                self._unhandled.append(command)
        self._work()

    def pause_writing(self) -> None:
        self._paused = True
        self._flowing.clear()

    def resume_writing(self) -> None:
        self._paused = False
        self._flowing.set()
        self.last_active = self._loop.time()
        self._work()

    def connection_lost(self, error: Exception | None) -> None:  # noqa: ARG002 - asyncio's call
        self._transport = None
        self._flowing.set()
        self._unhandled.clear()
        self._output.clear()
        closed = self._closed("was closed")
        for waiting, timer in self._pending.values():
            timer.cancel()
            if not waiting.done():
                waiting.set_exception(closed)
        self._pending.clear()
        if self._on_close is not None:
            self._on_close(self)

    def _begin(self, data: bytes) -> None:
        """The first byte tells plain from encrypted."""
        self._begun = True
        encrypted = data[0] == HANDSHAKE_RECORD
        if encrypted and self._tls_context is None:
            raise MalformedFrame("a TLS handshake, but no certificate is configured here")
        if not encrypted and self._tls_required:
            raise MalformedFrame("a connection without TLS, which is required here")
        if encrypted and self._tls_context is not None:
            self._tls = TlsSession(self._tls_context, server_side=True)

    def start_tls(self, context: ssl.SSLContext, host: str) -> None:
        """Speak TLS from the first byte, as a client."""
        self._begun = True
        self._tls = TlsSession(context, server_side=False, host=host)
        self._tls.start()
        self._write_encrypted()

    # -- requests of the peer --------------------------------------------------------------------

    def _work(self) -> None:
        """Handle what came, until it is done or the peer should read its answers first."""
        unhandled = self._unhandled
        self._flush_planned = True
        while unhandled and not self._is_full:
            self._handle(unhandled.popleft())
            if self._output_bytes > self._limits.output_bytes_high:
                self._flush()
        self._flush()
        self._choose_whether_to_read()

    @property
    def _is_full(self) -> bool:
        """Whether the peer has enough under way for now."""
        return (
            self._paused or len(self._tasks) >= self._limits.working_max or self._transport is None
        )

    def _choose_whether_to_read(self) -> None:
        """Stop where a request has to wait, and only there: two ends of which each waits for the
        other to read its answers would wait for ever.
        """
        transport = self._transport
        if transport is None or transport.is_closing():
            return
        if self._unhandled and transport.is_reading():
            transport.pause_reading()
        elif not self._unhandled and not transport.is_reading():
            transport.resume_reading()

    def _handle(self, command: Command) -> None:
        handler = self._handlers.get(command.code)
        if handler is None:
            code = ResponseCode.REQUEST_CODE_NOT_SUPPORTED
            self.answer(command, Response(code, f" request type {command.code} not supported"))
            return
        try:
            answer = handler(self, command)
        except Exception as error:  # noqa: BLE001 - the peer gets an answer whatever broke
            self.answer(command, _failure(command, error))
            return
        if isinstance(answer, Response):
            self.answer(command, answer)
        elif answer is not None:
            task = self._loop.create_task(self._answer_later(command, answer))
            self._tasks.add(task)
            task.add_done_callback(self._worked)

    async def _answer_later(self, command: Command, answer: Awaitable[Response | None]) -> None:
        try:
            response = await answer
        except Exception as error:  # noqa: BLE001 - the peer gets an answer whatever broke
            response = _failure(command, error)
        if response is not None:
            self.answer(command, response)

    def _worked(self, task: asyncio.Task[None]) -> None:
        was_full = self._is_full
        self._tasks.discard(task)
        if was_full and not self._is_full:
            self._work()

    def answer(self, command: Command, response: Response) -> None:
        """Send the answer to a request; nothing for one-way requests and closed connections."""
        if self._latencies is not None:
            self._latencies.add(command, response.code)
        if command.is_oneway:
            return
        try:
            frame = encode_response(response, command.opaque, command.kind)
        except Exception as error:  # noqa: BLE001 - the peer gets an answer whatever broke
            frame = encode_response(_failure(command, error), command.opaque, command.kind)
        self._send(frame)

    def answer_all(self, frames: bytes) -> None:
        """Send the answers to several requests, ready to be written; one-way ones have none."""
        if frames and self._transport is not None:
            self._output.append(frames)
            self._output_bytes += len(frames)
            self._flush()

    # -- requests of ours ------------------------------------------------------------------------

    async def request(self, request: Request, timeout_s: float) -> Command:
        """Send a request and wait for its answer."""
        waiting, opaque = self.ask(request, timeout_s), self._opaque
        try:
            return await waiting
        except asyncio.CancelledError:
            self._forget(opaque)
            raise

    def ask(self, request: Request, timeout_s: float) -> asyncio.Future[Command]:
        """Send a request; its answer comes by the future, without a task that waits for it."""
        self._require_open()
        if len(self._pending) >= self._limits.pending_max:
            raise TransportError(f"{len(self._pending)} requests to {self.peer} wait for answers")
        opaque = self._next_opaque()
        self._send(encode_request(request, opaque))
        waiting: asyncio.Future[Command] = self._loop.create_future()
        timer = self._loop.call_later(timeout_s, self._give_up, opaque, request.code, timeout_s)
        self._pending[opaque] = waiting, timer
        return waiting

    def _give_up(self, opaque: int, code: int, timeout_s: float) -> None:
        waiting, _ = self._pending.pop(opaque)
        if not waiting.done():
            said = f"no answer from {self.peer} to request {code} within {timeout_s:.3g} s"
            waiting.set_exception(RequestTimeout(said))

    async def writable(self) -> None:
        """Wait until the peer has read enough of what was sent to it."""
        if self._output_bytes > self._limits.output_bytes_high:
            self._flush()
        await self._flowing.wait()

    def tell(self, request: Request) -> None:
        """Send a one-way request; without a connection it goes nowhere."""
        self._send(encode_request(request, self._next_opaque(), oneway=True))

    def _take_response(self, command: Command) -> None:
        waiting = self._forget(command.opaque)
        if waiting is not None and not waiting.done():
            waiting.set_result(command)

    def _forget(self, opaque: int) -> asyncio.Future[Command] | None:
        """Who waits for that answer, and does so no longer."""
        if opaque not in self._pending:
            return None
        waiting, timer = self._pending.pop(opaque)
        timer.cancel()
        return waiting

    def _next_opaque(self) -> int:
        self._opaque = self._opaque % _OPAQUE_MAX + 1
        return self._opaque

    def _require_open(self) -> None:
        if not self.is_open:
            raise self._closed("is closed")

    def _closed(self, what: str) -> ConnectionClosed:
        why = f": {self._wrong}" if self._wrong else ""
        return ConnectionClosed(f"the connection to {self.peer} {what}{why}")

    # -- output ----------------------------------------------------------------------------------

    def _send(self, frame: list[bytes]) -> None:
        if self._transport is None:
            return
        self._output += frame
        self._output_bytes += sum(map(len, frame))
        if not self._flush_planned:
            self._flush_planned = True
            self._loop.call_soon(self._flush)

    def _flush(self) -> None:
        self._flush_planned = False
        pieces, size = self._output, self._output_bytes
        self._output, self._output_bytes = [], 0
        transport = self._transport
        if transport is None or transport.is_closing() or not pieces:
            return
        if self._tls is not None:
            self._tls.encrypt(b"".join(pieces))
            self._write_encrypted()
        elif size >= PIECE_BYTES_MIN * len(pieces) and all(map(_is_own, pieces)):
            transport.writelines(pieces)
        else:
            # One copy out of the mapped log: what the socket does not take at once must not
            # hold on to a file that may be deleted.
            transport.write(b"".join(pieces))
        self.last_active = self._loop.time() if not self._paused else self.last_active
        if self._unsent() > self._limits.output_bytes_max:
            log.warning("%s cut off: it leaves %d bytes unread", self.peer, self._unsent())
            transport.abort()

    def _write_encrypted(self) -> None:
        if self._tls is not None and self._transport is not None:
            data = self._tls.outgoing()
            if data:
                self._transport.write(data)

    def _unsent(self) -> int:
        if self._transport is None:
            return 0
        held_back = self._tls.held_back_bytes if self._tls is not None else 0
        return self._transport.get_write_buffer_size() + held_back

    # -- end -------------------------------------------------------------------------------------

    def close(self) -> None:
        """Send what is due, then close."""
        if self._output:
            self._flush()
        if self._transport is not None:
            if self._tls is not None and not self._transport.is_closing():
                self._tls.finish()
                self._write_encrypted()
            self._transport.close()

    def abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()


def _host(name: Any) -> Host:
    return Host(name[0], name[1]) if isinstance(name, tuple) else Host(str(name or ""), 0)


def _failure(command: Command, error: Exception) -> Response:
    if isinstance(error, Refusal):
        return error.response
    if isinstance(error, MalformedFields):
        return Response(ResponseCode.SYSTEM_ERROR, str(error)[:REMARK_CHARS_MAX])
    log.error("request %d failed", command.code, exc_info=error)
    remark = f"{type(error).__name__}: {error}"[:REMARK_CHARS_MAX]
    # A file's name in an error's text may hold what UTF-8 cannot say.
    return Response(ResponseCode.SYSTEM_ERROR, remark.encode(errors="replace").decode())


def _is_own(piece: bytes | memoryview) -> bool:
    """Whether it lies in memory of its own, and not in a mapped file."""
    return isinstance(piece, bytes) or isinstance(piece.obj, bytes)
