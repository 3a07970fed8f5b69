"""Which cluster a command talks to: by flags, a context, the environment, or the default.

`-n` alone uses nothing of a context: one cluster's keys are not for another one.
"""

import argparse
import os
import ssl
from pathlib import Path
from typing import TYPE_CHECKING, Final

from cometmq.ports import NAMESRV_PORT

from .arguments import positive
from .exits import WrongUse

if TYPE_CHECKING:
    from cometmq.client.cluster import Cluster, Credentials

    from .context_file import Context

DEFAULT_NAMESRV: Final = f"127.0.0.1:{NAMESRV_PORT}"
NAMESRV_VARIABLE: Final = "NAMESRV_ADDR"
CONTEXT_VARIABLE: Final = "COMETMQ_CONTEXT"
ACCESS_KEY_VARIABLE: Final = "COMETMQ_ACCESS_KEY"
SECRET_KEY_VARIABLE: Final = "COMETMQ_SECRET_KEY"  # noqa: S105 - the name of a variable
TIMEOUT_S: Final = 5.0


def add_connection_options(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("which cluster")
    group.add_argument(
        "-n", "--namesrv", metavar="HOST:PORT",
        help="the NameServer, several with ; between (that of the context, then "
        f"{NAMESRV_VARIABLE}, then {DEFAULT_NAMESRV})",
    )  # fmt: skip
    group.add_argument(
        "--context", metavar="NAME",
        help=f"a cluster by its name ({CONTEXT_VARIABLE}, then that of `cometmq context use`)",
    )  # fmt: skip
    group.add_argument("--tls", action="store_true", help="encrypt")
    group.add_argument(
        "--tls-ca", type=Path, metavar="FILE", help="encrypt, and trust this authority alone"
    )
    group.add_argument(
        "--access-key", metavar="KEY",
        help=f"sign requests ({ACCESS_KEY_VARIABLE}); the secret is in {SECRET_KEY_VARIABLE}",
    )  # fmt: skip
    group.add_argument(
        "--timeout", type=positive, default=TIMEOUT_S, metavar="SECONDS",
        help=f"for an answer ({TIMEOUT_S:g})",
    )  # fmt: skip


def cluster_of(options: argparse.Namespace) -> "Cluster":
    from cometmq.client.cluster import Cluster

    context = _context(options)
    return Cluster(
        options.namesrv or context.namesrv,
        tls=_tls(options, context),
        credentials=_credentials(options, context),
        request_timeout_s=options.timeout,
        connect_timeout_s=min(options.timeout, TIMEOUT_S),
    )


def _context(options: argparse.Namespace) -> "Context":
    from .context_file import Context

    if options.namesrv and not options.context:
        return Context(options.namesrv)
    return chosen_context(options.context or "")


def chosen_context(name: str = "") -> "Context":
    """Of this name, or that of the environment, or the current one, or none but an address."""
    from .context_file import Context, load

    name = name or os.environ.get(CONTEXT_VARIABLE, "")
    contexts = load()
    if name or contexts.current:
        return contexts.get(name or contexts.current)
    return Context(os.environ.get(NAMESRV_VARIABLE) or DEFAULT_NAMESRV)


def _tls(options: argparse.Namespace, context: "Context") -> ssl.SSLContext | None:
    from cometmq.transport.tls import client_context

    authority = options.tls_ca or (Path(context.tls_ca) if context.tls_ca else None)
    if authority is None and not options.tls and not context.tls:
        return None
    try:
        return client_context(authority)
    except OSError as error:  # ssl.SSLError is one.
        raise WrongUse(f"--tls-ca {authority}: {error}; a PEM file is expected") from None


def _credentials(options: argparse.Namespace, context: "Context") -> "Credentials | None":
    from cometmq.client.cluster import Credentials

    access_key = options.access_key or context.access_key
    access_key = access_key or os.environ.get(ACCESS_KEY_VARIABLE, "")
    if not access_key:
        return None
    if access_key == context.access_key and context.secret_key:
        return Credentials(access_key, context.secret_key, context.security_token)
    secret_key = os.environ.get(SECRET_KEY_VARIABLE, "")
    if not secret_key:
        raise WrongUse(
            f"the access key {access_key} has no secret: set {SECRET_KEY_VARIABLE}, or keep both "
            "in a context (`cometmq context add`)"
        )
    return Credentials(access_key, secret_key)
