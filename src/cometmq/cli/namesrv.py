"""`cometmq namesrv`: run a NameServer until a signal ends it."""

import argparse
import logging
from pathlib import Path
from typing import Any

from cometmq.namesrv.config import DEFAULT_PORT, NamesrvConfig, load
from cometmq.namesrv.kv_config import KvConfigDamaged
from cometmq.namesrv.server import NameServer
from cometmq.settings import BadSetting, read_file
from cometmq.transport.loop import run

from .serving import complain, raise_file_limit, say_ready, until_signal

Commands = Any  # argparse does not name the type of its sub-parsers
log = logging.getLogger(__name__)


def add_commands(commands: Commands) -> None:
    parser = commands.add_parser(
        "namesrv",
        help="run a NameServer",
        description="Tells clients where topics are. Runs until SIGTERM or SIGINT.",
    )
    parser.add_argument(
        "-c", "--config", type=Path, metavar="FILE", help="settings: RocketMQ's key=value, or TOML"
    )
    parser.add_argument("--host", help="address to listen at (bindAddress, 127.0.0.1)")
    parser.add_argument(
        "--port", type=int, help=f"port to listen at (listenPort, {DEFAULT_PORT}); 0: a free one"
    )
    parser.set_defaults(run=run_namesrv)


def run_namesrv(options: argparse.Namespace) -> int:
    try:
        config, without_effect = load(_values(options))
        server = NameServer(config)
    except BadSetting as error:
        complain(str(error))
        return 2
    for key in without_effect:
        log.warning("%s has no effect here", key)
    raise_file_limit()
    return run(_serve(server, config))


def _values(options: argparse.Namespace) -> dict[str, Any]:
    values = read_file(options.config) if options.config is not None else {}
    if options.host is not None:
        values["bindAddress"] = options.host
    if options.port is not None:
        values["listenPort"] = options.port
    return values


async def _serve(server: NameServer, config: NamesrvConfig) -> int:
    ended = until_signal()
    try:
        await server.start()
    except (OSError, KvConfigDamaged) as error:
        complain(f"no NameServer at {config.bind_address}:{config.port}: {error}")
        return 1
    say_ready(f"namesrv={server.address}")
    await ended.wait()
    await server.stop()
    return 0
