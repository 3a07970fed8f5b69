"""`cometmq namesrv`: run a NameServer until a signal ends it."""

import argparse
import functools
import logging
from typing import Any

from cometmq.logs import set_up
from cometmq.namesrv.config import NamesrvConfig, load
from cometmq.namesrv.kv_config import KvConfigDamaged
from cometmq.namesrv.server import NameServer
from cometmq.ports import NAMESRV_PORT
from cometmq.settings import BadSetting
from cometmq.sources import values
from cometmq.transport.loop import run
from cometmq.web.pages import of_name_server

from .arguments import add_settings_options
from .roles import given
from .serving import complain, raise_file_limit, until_signal
from .watch import Watch, serve_until

log = logging.getLogger(__name__)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.description = "Tells clients where topics are. Runs until SIGTERM or SIGINT."
    add_settings_options(parser)
    parser.add_argument("--host", help="address to listen at (bindAddress, 127.0.0.1)")
    parser.add_argument(
        "--port", type=int, help=f"port to listen at (listenPort, {NAMESRV_PORT}); 0: a free one"
    )
    parser.set_defaults(run=run_namesrv)


def run_namesrv(options: argparse.Namespace) -> int:
    try:
        config, without_effect = load(_values(options))
        server = NameServer(config)
    except BadSetting as error:
        complain(str(error))
        return 2
    set_up(config.log_format, config.log_level, "namesrv")
    for key in without_effect:
        log.warning("%s has no effect here", key)
    raise_file_limit()
    return run(_serve(server, config, options))


def _values(options: argparse.Namespace) -> dict[str, Any]:
    flags = {
        "bindAddress": ("--host", options.host),
        "listenPort": ("--port", options.port),
        "log.level": ("-v", "INFO" if options.verbose else None),
    }
    return values(given("namesrv", options, flags))


async def _serve(server: NameServer, config: NamesrvConfig, options: argparse.Namespace) -> int:
    ended = until_signal()
    try:
        await server.start()
    except (OSError, KvConfigDamaged) as error:
        complain(f"no NameServer at {config.bind_address}:{config.port}: {error}")
        return 1
    try:
        watch = Watch(config, config.bind_address, of_name_server(server))
        reread = functools.partial(_reread, server, options) if options.config else None
        await serve_until(ended, f"namesrv={server.address}", watch, reread)
    finally:
        await server.stop()
    return 0


async def _reread(server: NameServer, options: argparse.Namespace) -> tuple[list[str], list[str]]:
    config, _ = load(_values(options))
    return server.state.renew(config)
