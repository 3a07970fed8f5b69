"""`cometmq broker`: run a broker; and, with an action, look at running ones and configure them."""

import argparse
from pathlib import Path
from typing import Any, Final

from cometmq.client.admin import Admin
from cometmq.client.admin.brokers import RuntimeInfo
from cometmq.client.admin.reach import BrokerNode
from cometmq.client.errors import AnswerTimedOut, ConnectionLost, Unreachable
from cometmq.ports import BROKER_PORT

from .arguments import (
    DEFAULT_DATA_DIR,
    Commands,
    add_settings_options,
    add_target_options,
    pair,
)
from .asking import asks, in_turns
from .broker_group import add_actions
from .exits import NothingThere, WrongUse
from .view import Table, View, lines_of, of_rows

_ACTIONS: Final = {
    "list", "status", "config", "writes", "group", "transfer", "join", "leave",
}  # fmt: skip
_AWAY: Final = (AnswerTimedOut, ConnectionLost, Unreachable)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Without an action: keeps messages and hands them out, until SIGTERM or SIGINT."
    )
    _add_server(parser)
    actions = parser.add_subparsers(metavar="ACTION", title="actions on running brokers")
    asks(actions.add_parser("list", help="all brokers, and what goes through them"), _list,
         watch=True)  # fmt: skip
    status = actions.add_parser("status", help="everything that a broker tells of itself")
    status.add_argument("broker", help="its name or address")
    asks(status, _status, watch=True)
    _add_config(actions)
    add_actions(actions)
    writes = actions.add_parser(
        "writes",
        help="have producers leave a broker, or come back",
        description="Takes the permission to write from all topics of a broker, or gives it back: "
        "before it is stopped, producers go elsewhere and consumers read what is left.",
    )
    writes.add_argument("broker", help="its name")
    writes.add_argument("how", choices=("forbid", "allow"))
    asks(writes, _writes)


def _add_server(parser: argparse.ArgumentParser) -> None:
    add_settings_options(parser)
    parser.add_argument(
        "-n", "--namesrv", nargs="+", metavar="HOST:PORT", help="NameServers (namesrvAddr)"
    )
    parser.add_argument("--name", help="name of the broker (brokerName, broker-a)")
    parser.add_argument("--host", help="address to listen at (bindAddress, 127.0.0.1)")
    parser.add_argument(
        "--port", type=int, help=f"port to listen at (listenPort, {BROKER_PORT}); 0: a free one"
    )
    parser.add_argument(
        "--data-dir",
        type=Path,
        metavar="DIR",
        help=f"where messages are kept (storePathRootDir, ./{DEFAULT_DATA_DIR}/<brokerName>)",
    )
    # Set by who starts a broker and wants it to end with itself.
    parser.add_argument("--until-stdin-ends", action="store_true", help=argparse.SUPPRESS)
    parser.set_defaults(run=_serve)


def _add_config(actions: Commands) -> None:
    config = actions.add_parser("config", help="settings of running brokers")
    verbs = config.add_subparsers(required=True, metavar="VERB")
    get = verbs.add_parser("get", help="show settings")
    get.add_argument("broker", help="its name or address")
    get.add_argument("key", nargs="*", help="only these")
    asks(get, _config_get)
    put = verbs.add_parser("set", help="change settings of running brokers")
    put.add_argument("setting", nargs="+", type=pair, metavar="KEY=VALUE")
    add_target_options(put)
    asks(put, _config_set)


def _serve(options: argparse.Namespace) -> int:
    from .broker_server import run_broker

    if _ACTIONS.intersection(options.namesrv or ()):
        raise WrongUse("-n stands behind the action, as in `cometmq broker list -n HOST:PORT`")
    return run_broker(options)


# -- actions -------------------------------------------------------------------------------------


async def _list(admin: Admin, _: argparse.Namespace) -> View:
    nodes = await admin.brokers.nodes()
    rows = await in_turns(_row(admin, node) for node in nodes)
    return of_rows(
        rows,
        "cluster", "broker", "id", "address", "state", "version", "in_tps", "out_tps", "in_today",
        "out_today", "disk_ratio",
    )  # fmt: skip


async def _row(admin: Admin, node: BrokerNode) -> dict[str, Any]:
    place = {
        "cluster": node.cluster,
        "broker": node.name,
        "id": node.broker_id,
        "address": node.address,
    }
    try:
        info = await _info(admin, node.address)
    except _AWAY:
        return {**place, "state": "unreachable"}
    return {
        **place,
        "state": "master" if node.broker_id == 0 else "slave",
        "version": info.version,
        "in_tps": info.put_tps,
        "out_tps": info.get_tps,
        "in_today": info.put_today,
        "out_today": info.get_today,
        "disk_ratio": info.disk_ratio,
        "boot_at": info.boot_timestamp,
    }


async def _info(admin: Admin, broker: str) -> RuntimeInfo:
    return next(iter((await admin.brokers.runtime_info(brokers=[broker])).values()))


async def _status(admin: Admin, options: argparse.Namespace) -> View:
    info = await _info(admin, options.broker)
    facts = {
        "version": info.version,
        "boot_at": info.boot_timestamp,
        "in_tps": info.put_tps,
        "out_tps": info.get_tps,
        "in_today": info.put_today,
        "out_today": info.get_today,
        "log_bytes": info.commit_log_max_offset - info.commit_log_min_offset,
        "disk_ratio": info.disk_ratio,
    }
    rows = [{"figure": key, "value": value.strip()} for key, value in sorted(info.table.items())]
    value = {"broker": options.broker, **facts, "runtime": info.table}
    return View(value, [lines_of(facts), Table(("figure", "value"), rows)])


async def _config_get(admin: Admin, options: argparse.Namespace) -> View:
    configs = await admin.brokers.config(brokers=[options.broker])
    config = next(iter(configs.values()))
    unknown = [key for key in options.key if key not in config]
    if unknown:
        raise NothingThere(f"{options.broker} has no setting {', '.join(unknown)}; see them all "
                           f"with `cometmq broker config get {options.broker}`")  # fmt: skip
    chosen = {key: config[key] for key in options.key or sorted(config)}
    rows = [{"key": key, "value": value} for key, value in chosen.items()]
    return View(chosen, [Table(("key", "value"), rows)])


async def _config_set(admin: Admin, options: argparse.Namespace) -> View:
    changes = dict(options.setting)
    await admin.brokers.update_config(changes, cluster=options.cluster, brokers=options.broker)
    named = ", ".join(f"{key}={value}" for key, value in changes.items())
    return View({"changed": changes}, [f"changed: {named}\n"])


async def _writes(admin: Admin, options: argparse.Namespace) -> View:
    await _require_broker(admin, options.broker)
    change = admin.brokers.forbid_writes if options.how == "forbid" else admin.brokers.allow_writes
    topics = await change(options.broker)
    rows = [{"namesrv": address, "topics": number} for address, number in topics.items()]
    return of_rows(rows, "namesrv", "topics")


async def _require_broker(admin: Admin, name: str) -> None:
    names = sorted({node.name for node in await admin.brokers.nodes()})
    if name not in names:
        raise NothingThere(f"there is no broker {name}; there are: {', '.join(names)}")
