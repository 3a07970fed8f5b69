"""TLS inside a connection that has already begun.

A server that takes plain and encrypted clients on one port sees the first byte before it knows
which it has; the event loop's own TLS wants to know earlier. So the record layer runs in memory:
what the socket brought goes in, plain bytes come out, and the other way round.
"""

import contextlib
import enum
import ssl
from pathlib import Path
from typing import NamedTuple

from cometmq.settings import BadSetting

HANDSHAKE_RECORD = 0x16
"""The first byte of every TLS connection; a frame whose length begins so would be over 350 MiB."""
_READ_BYTES = 64 * 1024


class TlsMode(enum.Enum):
    DISABLED = "disabled"
    PERMISSIVE = "permissive"
    """Plain and encrypted clients on one port."""
    ENFORCING = "enforcing"


class TlsSession:
    def __init__(self, context: ssl.SSLContext, *, server_side: bool, host: str | None = None):
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(
            self._incoming, self._outgoing, server_side=server_side, server_hostname=host
        )
        self._ready = False
        self._early: list[bytes] = []
        self.held_back_bytes = 0
        """Plain bytes that wait for the end of the handshake."""
        self.has_ended = False
        """Whether the other side has said that nothing follows."""

    def decrypt(self, data: bytes) -> bytes:
        """Plain bytes out of those that came. Raises ssl.SSLError when they are no TLS."""
        self._incoming.write(data)
        plain = []
        try:
            self._shake_hands()
            while chunk := self._tls.read(_READ_BYTES):
                plain.append(chunk)
            self.has_ended = True
        except ssl.SSLZeroReturnError:
            self.has_ended = True
        except ssl.SSLWantReadError:
            pass
        return b"".join(plain)

    def encrypt(self, data: bytes) -> None:
        """Take plain bytes; they are in `outgoing` as soon as the handshake is through."""
        if self._ready:
            self._write(data)
        else:
            self._early.append(data)
            self.held_back_bytes += len(data)

    def start(self) -> None:
        """Begin as a client does, without waiting for the other side."""
        with contextlib.suppress(ssl.SSLWantReadError):
            self._shake_hands()

    def finish(self) -> None:
        """Say that nothing follows; whether the other side says so too is not waited for."""
        with contextlib.suppress(ssl.SSLError):
            self._tls.unwrap()

    def outgoing(self) -> bytes:
        """What must go over the socket now."""
        return self._outgoing.read()

    def _shake_hands(self) -> None:
        if self._ready:
            return
        self._tls.do_handshake()
        self._ready = True
        for data in self._early:
            self._write(data)
        self._early.clear()
        self.held_back_bytes = 0

    def _write(self, data: bytes) -> None:
        rest = memoryview(data)
        while rest:
            rest = rest[self._tls.write(rest) :]


def server_context(certificate: Path, key: Path, password: str | None = None) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.load_cert_chain(certificate, key, password)
    return context


def listening_context(
    mode: TlsMode, certificate: Path | None, key: Path | None, password: str | None
) -> ssl.SSLContext | None:
    """What a server with these settings speaks TLS with; None if it does not."""
    if mode is TlsMode.DISABLED or certificate is None or key is None:
        return None
    try:
        return server_context(certificate, key, password)
    except OSError as error:  # ssl.SSLError is one.
        raise BadSetting(
            f"tls.server.certPath, tls.server.keyPath: cannot use {certificate}, {key}: {error}"
        ) from None


def client_context(authority: Path | None = None) -> ssl.SSLContext:
    """Trusts `authority`, or without one everybody, as RocketMQ's clients do by default."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    if authority is None:
        context.verify_mode = ssl.CERT_NONE
    else:
        context.load_verify_locations(authority)
    return context


class MutualTls(NamedTuple):
    """Between servers of one kind: whoever speaks has a certificate of their authority."""

    listening: ssl.SSLContext
    dialling: ssl.SSLContext


def mutual_tls(certificate: Path, key: Path, password: str | None, authority: Path) -> MutualTls:
    """OSError when a file cannot be used. Which host a certificate is for is not looked at: an
    authority that signs for nobody else says enough, and addresses may be anything."""
    listening = server_context(certificate, key, password)
    listening.load_verify_locations(authority)
    listening.verify_mode = ssl.CERT_REQUIRED
    dialling = client_context(authority)
    dialling.minimum_version = ssl.TLSVersion.TLSv1_2
    dialling.load_cert_chain(certificate, key, password)
    return MutualTls(listening, dialling)
