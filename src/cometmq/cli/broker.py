"""`cometmq broker`: run a broker until a signal ends it."""

import argparse
import logging
from pathlib import Path
from typing import Any

from cometmq.broker.broker import Broker
from cometmq.broker.config import DEFAULT_PORT, BrokerConfig, load
from cometmq.settings import BadSetting, read_file
from cometmq.store.config import StoreConfig
from cometmq.store.errors import StoreError
from cometmq.store.failure import exit_on_failure
from cometmq.transport.loop import run
from cometmq.transport.memory import keep_freed_memory

from .serving import complain, raise_file_limit, say_ready, until_signal

Commands = Any  # argparse does not name the type of its sub-parsers
log = logging.getLogger(__name__)
DEFAULT_DATA_DIR = Path("cometmq-data")


def add_commands(commands: Commands) -> None:
    parser = commands.add_parser(
        "broker",
        help="run a broker",
        description="Keeps messages and hands them out. Runs until SIGTERM or SIGINT.",
    )
    parser.add_argument(
        "-c", "--config", type=Path, metavar="FILE", help="settings: RocketMQ's key=value, or TOML"
    )
    parser.add_argument(
        "-n", "--namesrv", nargs="+", metavar="HOST:PORT", help="NameServers (namesrvAddr)"
    )
    parser.add_argument("--name", help="name of the broker (brokerName, broker-a)")
    parser.add_argument("--host", help="address to listen at (bindAddress, 127.0.0.1)")
    parser.add_argument(
        "--port", type=int, help=f"port to listen at (listenPort, {DEFAULT_PORT}); 0: a free one"
    )
    parser.add_argument(
        "--data-dir",
        type=Path,
        metavar="DIR",
        help=f"where messages are kept (storePathRootDir, ./{DEFAULT_DATA_DIR}/<brokerName>)",
    )
    # Set by who starts a broker and wants it to end with itself.
    parser.add_argument("--until-stdin-ends", action="store_true", help=argparse.SUPPRESS)
    parser.set_defaults(run=run_broker)


def run_broker(options: argparse.Namespace) -> int:
    try:
        config, store_config, without_effect = load(_values(options))
    except BadSetting as error:
        complain(str(error))
        return 2
    for key in without_effect:
        log.warning("%s has no effect here", key)
    raise_file_limit()
    keep_freed_memory()
    return run(_serve(config, store_config, or_stdin_ends=options.until_stdin_ends))


def _values(options: argparse.Namespace) -> dict[str, Any]:
    values = read_file(options.config) if options.config is not None else {}
    given = {
        "namesrvAddr": ";".join(options.namesrv) if options.namesrv else None,
        "brokerName": options.name,
        "bindAddress": options.host,
        "listenPort": options.port,
        "storePathRootDir": options.data_dir,
    }
    values |= {key: value for key, value in given.items() if value is not None}
    name = values.get("brokerName", BrokerConfig().name)
    values.setdefault("storePathRootDir", DEFAULT_DATA_DIR / str(name))
    return values


async def _serve(config: BrokerConfig, store_config: StoreConfig, *, or_stdin_ends: bool) -> int:
    ended = until_signal(or_stdin_ends=or_stdin_ends)
    try:
        broker = Broker(config, store_config, on_failure=exit_on_failure)
        await broker.start()
    except BadSetting as error:
        complain(str(error))
        return 2
    except (OSError, StoreError) as error:
        complain(f"no broker at {config.bind_address}:{config.port}: {error}")
        return 1
    say_ready(f"broker={config.name}@{broker.address}")
    await ended.wait()
    await broker.stop()
    return 0
