"""HTTP/1.1 as far as probes and scrapes use it: bytes in, requests out; answers in, bytes out.

No sockets here. Only GET and HEAD without a body are understood; anything else is answered with
an error that ends the connection, so nothing that follows can be taken for a request.
"""

from http import HTTPStatus
from typing import Final, NamedTuple

HEAD_BYTES_MAX: Final = 16 * 1024
"""Of a request's first line and fields together."""
_END: Final = b"\r\n\r\n"


class Request(NamedTuple):
    path: str
    is_head: bool
    keeps_alive: bool


class Answer(NamedTuple):
    status: HTTPStatus
    body: bytes
    content_type: str = "text/plain; charset=utf-8"


class BadRequest(ValueError):
    """What came is no request that is served here."""

    def __init__(self, status: HTTPStatus, what: str) -> None:
        super().__init__(what)
        self.answer = Answer(status, f"{what}\n".encode())


class RequestParser:
    def __init__(self) -> None:
        self._buffer = b""

    def feed(self, data: bytes) -> None:
        self._buffer += data

    @property
    def held_bytes(self) -> int:
        return len(self._buffer)

    def next(self) -> Request | None:
        """The next whole request; None when there is none yet. BadRequest ends it all."""
        head, end, rest = self._buffer.partition(_END)
        if len(head) > HEAD_BYTES_MAX:
            raise BadRequest(
                HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, f"more than {HEAD_BYTES_MAX} bytes"
            )
        if not end:
            return None
        self._buffer = rest
        return _parsed(head.decode("latin-1"))


def _parsed(head: str) -> Request:
    first, *lines = head.split("\r\n")
    words = first.split(" ")
    if len(words) != 3 or not words[2].startswith("HTTP/1."):
        raise BadRequest(HTTPStatus.BAD_REQUEST, "not an HTTP/1.1 request")
    method, target, version = words
    fields = {}
    for line in lines:
        name, colon, value = line.partition(":")
        if not colon:
            raise BadRequest(HTTPStatus.BAD_REQUEST, "a header field without a colon")
        fields[name.strip().lower()] = value.strip().lower()
    if method not in ("GET", "HEAD"):
        raise BadRequest(HTTPStatus.METHOD_NOT_ALLOWED, "only GET and HEAD are served")
    if fields.get("content-length", "0") != "0" or "transfer-encoding" in fields:
        raise BadRequest(HTTPStatus.BAD_REQUEST, "a request with a body")
    keeps_alive = version != "HTTP/1.0" and fields.get("connection") != "close"
    return Request(target.partition("?")[0], method == "HEAD", keeps_alive)


def encoded(answer: Answer, *, is_head: bool = False, keeps_alive: bool = False) -> bytes:
    head = (
        f"HTTP/1.1 {answer.status.value} {answer.status.phrase}\r\n"
        f"Content-Type: {answer.content_type}\r\n"
        f"Content-Length: {len(answer.body)}\r\n"
        "Cache-Control: no-store\r\n"
        f"Connection: {'keep-alive' if keeps_alive else 'close'}\r\n\r\n"
    ).encode()
    return head if is_head else head + answer.body
