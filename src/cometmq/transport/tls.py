"""TLS inside a connection that has already begun.

A server that takes plain and encrypted clients on one port sees the first byte before it knows
which it has; the event loop's own TLS wants to know earlier. So the record layer runs in memory:
what the socket brought goes in, plain bytes come out, and the other way round.
"""

import contextlib
import ssl
from pathlib import Path

HANDSHAKE_RECORD = 0x16
"""The first byte of every TLS connection; a frame whose length begins so would be over 350 MiB."""
_READ_BYTES = 64 * 1024


class TlsSession:
    def __init__(self, context: ssl.SSLContext, *, server_side: bool, host: str | None = None):
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(
            self._incoming, self._outgoing, server_side=server_side, server_hostname=host
        )
        self._ready = False
        self._early: list[bytes] = []

    def decrypt(self, data: bytes) -> bytes:
        """Plain bytes out of those that came. Raises ssl.SSLError when they are no TLS."""
        self._incoming.write(data)
        plain = []
        try:
            self._shake_hands()
            while chunk := self._tls.read(_READ_BYTES):
                plain.append(chunk)
        except ssl.SSLWantReadError:
            pass
        return b"".join(plain)

    def encrypt(self, data: bytes) -> None:
        """Take plain bytes; they are in `outgoing` as soon as the handshake is through."""
        if self._ready:
            self._tls.write(data)
        else:
            self._early.append(data)

    def start(self) -> None:
        """Begin as a client does, without waiting for the other side."""
        with contextlib.suppress(ssl.SSLWantReadError):
            self._shake_hands()

    def outgoing(self) -> bytes:
        """What must go over the socket now."""
        return self._outgoing.read()

    def _shake_hands(self) -> None:
        if self._ready:
            return
        self._tls.do_handshake()
        self._ready = True
        for data in self._early:
            self._tls.write(data)
        self._early.clear()


def server_context(certificate: Path, key: Path, password: str | None = None) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.load_cert_chain(certificate, key, password)
    return context


def client_context(authority: Path | None = None) -> ssl.SSLContext:
    """Trusts `authority`, or without one everybody, as RocketMQ's clients do by default."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    if authority is None:
        context.verify_mode = ssl.CERT_NONE
    else:
        context.load_verify_locations(authority)
    return context
