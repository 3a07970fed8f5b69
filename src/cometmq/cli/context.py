"""`cometmq context`: names for clusters, so that commands need no address."""

import argparse
import os
import sys
from pathlib import Path
from typing import Any

import msgspec

from .arguments import add_output_option
from .connection import SECRET_KEY_VARIABLE
from .context_file import SECRET, Context, Contexts, load, save
from .exits import WrongUse
from .view import View, as_json, as_text, of_rows


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Contexts are kept in $XDG_CONFIG_HOME/cometmq/contexts.json (~/.config/…), readable by "
        "its owner alone."
    )
    actions = parser.add_subparsers(required=True, metavar="ACTION")
    listing = actions.add_parser("list", help="all contexts, without their secrets")
    _finish(listing, _list)
    add = actions.add_parser("add", help="name a cluster, or change how it is reached")
    add.add_argument("name")
    add.add_argument(
        "-n", "--namesrv", required=True, metavar="HOST:PORT", help="several with ; between"
    )
    add.add_argument("--tls", action="store_true", help="encrypt")
    add.add_argument("--tls-ca", default="", metavar="FILE", help="trust this authority alone")
    add.add_argument(
        "--access-key", default="", metavar="KEY",
        help=f"sign requests; the secret is read from {SECRET_KEY_VARIABLE} or the first line of "
        "stdin, so that no list of processes shows it",
    )  # fmt: skip
    add.add_argument("--use", action="store_true", help="from now on")
    _finish(add, _add)
    use = actions.add_parser("use", help="have commands talk to this cluster from now on")
    use.add_argument("name", help="`-`: none")
    _finish(use, _use)
    remove = actions.add_parser("remove", help="forget a context")
    remove.add_argument("name")
    _finish(remove, _remove)


def _finish(parser: argparse.ArgumentParser, act: Any) -> None:
    add_output_option(parser)
    parser.set_defaults(run=_run, act=act)


def _run(options: argparse.Namespace) -> int:
    view: View = options.act(load(), options)
    sys.stdout.write(as_json(view.value) if options.output == "json" else as_text(view))
    return view.exit_code


def _list(contexts: Contexts, _: argparse.Namespace) -> View:
    rows = [
        {"name": name, "current": name == contexts.current, **_without_secrets(context)}
        for name, context in sorted(contexts.contexts.items())
    ]
    return of_rows(rows, "name", "current", "namesrv", "tls", "tls_ca", "access_key")


def _without_secrets(context: Context) -> dict[str, Any]:
    return {n: v for n, v in msgspec.structs.asdict(context).items() if n not in SECRET}


def _add(contexts: Contexts, options: argparse.Namespace) -> View:
    from cometmq.client.cluster import Cluster

    Cluster(options.namesrv)  # Refuses what is no address.
    if options.tls_ca and not Path(options.tls_ca).is_file():
        raise WrongUse(f"--tls-ca {options.tls_ca}: there is no such file")
    contexts.contexts[options.name] = Context(
        options.namesrv,
        tls=options.tls or bool(options.tls_ca),
        tls_ca=str(Path(options.tls_ca).resolve()) if options.tls_ca else "",
        access_key=options.access_key,
        secret_key=_secret() if options.access_key else "",
    )
    if options.use:
        contexts.current = options.name
    save(contexts)
    return _changed(options.name, "added" + (" and in use" if options.use else ""))


def _secret() -> str:
    secret = os.environ.get(SECRET_KEY_VARIABLE) or sys.stdin.readline().strip()
    if not secret:
        raise WrongUse(
            f"the access key needs a secret: set {SECRET_KEY_VARIABLE}, or give it on stdin"
        )
    return secret


def _use(contexts: Contexts, options: argparse.Namespace) -> View:
    if options.name == "-":
        contexts.current = ""
        save(contexts)
        return View({"name": "", "result": "none in use"}, ["no context is in use\n"])
    contexts.get(options.name)
    contexts.current = options.name
    save(contexts)
    return _changed(options.name, "in use")


def _remove(contexts: Contexts, options: argparse.Namespace) -> View:
    contexts.get(options.name)
    del contexts.contexts[options.name]
    if contexts.current == options.name:
        contexts.current = ""
    save(contexts)
    return _changed(options.name, "removed")


def _changed(name: str, what: str) -> View:
    return View({"name": name, "result": what}, [f"context {name}: {what}\n"])
