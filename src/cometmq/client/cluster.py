"""Which cluster to talk to, and how: what producers, consumers and tools have in common."""

import base64
import dataclasses
import hashlib
import hmac
import itertools
import os
import socket
import ssl
import time
from collections.abc import Mapping, Sequence

from cometmq.protocol.command import Request, as_text
from cometmq.transport.dial import split_address

from .errors import IllegalArgument

_counter = itertools.count(1)


@dataclasses.dataclass(frozen=True)
class Credentials:
    """An access key and its secret, with which every request is signed."""

    access_key: str
    secret_key: str = dataclasses.field(repr=False)
    security_token: str = dataclasses.field(default="", repr=False)

    def sign(self, request: Request) -> Request:
        """The request with RocketMQ's signature: over the values in order of their names."""
        fields = {**request.fields, "AccessKey": self.access_key}
        if self.security_token:
            fields["SecurityToken"] = self.security_token
        said = "".join(fields[name] for name in sorted(fields)).encode()
        body = request.body if isinstance(request.body, bytes) else b"".join(request.body)
        digest = hmac.new(self.secret_key.encode(), said + body, hashlib.sha1).digest()
        fields["Signature"] = base64.b64encode(digest).decode()
        return Request(request.code, fields, body)


@dataclasses.dataclass(frozen=True)
class Cluster:
    """A cluster by its NameServers: `"host:port"`, several with `;` between them or as a list."""

    namesrv: str | Sequence[str]
    _: dataclasses.KW_ONLY
    tls: ssl.SSLContext | None = None
    credentials: Credentials | None = None
    request_timeout_s: float = 3.0
    connect_timeout_s: float = 3.0
    route_refresh_s: float = 30.0
    heartbeat_s: float = 30.0

    def __post_init__(self) -> None:
        if not self.addresses:
            raise IllegalArgument("no NameServer: give its address, as in 127.0.0.1:9876")
        for address in self.addresses:
            _checked(address)

    @property
    def addresses(self) -> list[str]:
        listed = self.namesrv.split(";") if isinstance(self.namesrv, str) else list(self.namesrv)
        return [address.strip() for address in listed if address.strip()]


def cluster_at(where: "str | Cluster") -> Cluster:
    return where if isinstance(where, Cluster) else Cluster(where)


def new_client_id() -> str:
    """As RocketMQ forms them: address, process, and what makes it this instance's alone."""
    return f"{local_ip()}@{os.getpid()}#{next(_counter)}#{time.monotonic_ns()}"


def local_ip() -> str:
    """The address from which this machine speaks to others; loopback when it has no other."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))  # Reserved for documentation; nothing is sent.
        except OSError:
            return "127.0.0.1"
        name: str = probe.getsockname()[0]
        return name


def text_fields(values: Mapping[str, object]) -> dict[str, str]:
    """Values as a request's header carries them; those that are None are left out."""
    return {name: as_text(value) for name, value in values.items() if value is not None}


def _checked(address: str) -> None:
    try:
        split_address(address)
    except ValueError as error:
        raise IllegalArgument(str(error)) from None
