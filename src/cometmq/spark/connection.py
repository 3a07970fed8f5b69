"""How to reach a cluster, as options of the source and the sink say it, and what of that is secret.

Secrets never show in a text that is made of options.
"""

import ssl
from collections.abc import Mapping
from pathlib import Path

from cometmq.client.cluster import Cluster, Credentials
from cometmq.transport.tls import client_context

from .errors import BadOption
from .option_values import boolean, canonical

SECRET = ("accessKey", "secretKey", "securityToken")
CONNECTION = ("namesrvAddr", *SECRET, "tls", "tlsCaFile")
_REDACTED = "*********(redacted)"
_ANY_SECRET = "|".join(SECRET)
SECRETS_IN_PLANS = (
    rf'(?i)(?<=key: "(?:{_ANY_SECRET})"\s{{1,999}}value: ")(?:[^"\\]|\\.)+'
    rf"|(?<=(?:{_ANY_SECRET})(?:\\['\"]|`)?[\s=]{{0,99}}\\['\"])[^'\"\\]+"
)
"""What is secret in a plan as Spark Connect writes it down, with its options and the texts of SQL.
A pattern for Java."""


def redacted(given: Mapping[str, str]) -> dict[str, str]:
    """Options as they may be shown."""
    secret = {name.lower() for name in SECRET}
    return {name: _REDACTED if name.lower() in secret else value for name, value in given.items()}


def checked_connection(given: Mapping[str, str]) -> dict[str, str]:
    """Options that say how to reach some cluster, its address perhaps excepted; BadOption if no
    cluster can be reached so."""
    options = canonical(given, CONNECTION)
    cluster_of({"namesrvAddr": "127.0.0.1:9876", **options})
    return options


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
    tls = _tls(options)
    try:
        return Cluster(addresses, tls=tls, credentials=credentials)
    except ValueError as error:
        raise BadOption(f"namesrvAddr: {error}") from None


def _tls(options: Mapping[str, str]) -> ssl.SSLContext | None:
    if not boolean(options, "tls", False):
        if "tlsCaFile" in options:
            raise BadOption("tlsCaFile is set, but tls is not true")
        return None
    authority = options.get("tlsCaFile")
    if authority is None:
        return client_context()
    if not authority.strip():  # Of a variable that is not set, perhaps; nobody would be verified.
        raise BadOption("tlsCaFile is empty: it is the path of the authority's certificates")
    try:
        return client_context(Path(authority))
    except OSError as error:  # ssl.SSLError is one.
        raise BadOption(f"tlsCaFile: {authority} cannot be used: {error}") from None
