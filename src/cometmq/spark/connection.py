"""How to reach a cluster, as options of the source and the sink say it, and what of that is secret.

Secrets never show in a text that is made of options.
"""

import ssl
from collections.abc import Mapping
from pathlib import Path

from cometmq.client.cluster import Cluster, Credentials
from cometmq.transport.tls import client_context

from .errors import BadOption
from .option_values import boolean

SECRET = ("accessKey", "secretKey", "securityToken")
CONNECTION = ("namesrvAddr", *SECRET, "tls", "tlsCaFile")
_REDACTED = "*********(redacted)"


def redacted(given: Mapping[str, str]) -> dict[str, str]:
    """Options as they may be shown."""
    secret = {name.lower() for name in SECRET}
    return {name: _REDACTED if name.lower() in secret else value for name, value in given.items()}


def cluster_of(options: Mapping[str, str]) -> Cluster:
    addresses = options.get("namesrvAddr", "")
    if not addresses.strip():
        raise BadOption("namesrvAddr is missing: the NameServer's address, as in 127.0.0.1:9876")
    keys = [options.get(name, "") for name in SECRET]
    credentials = None
    if any(keys):
        if not (keys[0] and keys[1]):
            raise BadOption("accessKey and secretKey are set together")
        credentials = Credentials(*keys)
    try:
        return Cluster(addresses, tls=_tls(options), credentials=credentials)
    except ValueError as error:
        raise BadOption(f"namesrvAddr: {error}") from None


def _tls(options: Mapping[str, str]) -> ssl.SSLContext | None:
    if not boolean(options, "tls", False):
        if "tlsCaFile" in options:
            raise BadOption("tlsCaFile is set, but tls is not true")
        return None
    authority = options.get("tlsCaFile")
    return client_context(Path(authority) if authority else None)
