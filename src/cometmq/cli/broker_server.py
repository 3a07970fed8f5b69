"""`cometmq broker` without an action: run a broker until a signal ends it."""

import argparse
import functools
import logging
from typing import Any

from cometmq.broker.broker import Broker
from cometmq.broker.config import BrokerConfig, load
from cometmq.logs import set_up
from cometmq.settings import BadSetting
from cometmq.sources import values
from cometmq.store.config import StoreConfig
from cometmq.store.errors import StoreError
from cometmq.store.failure import exit_on_failure
from cometmq.transport.loop import run
from cometmq.transport.memory import keep_freed_memory
from cometmq.web.pages import of_broker

from .roles import given
from .serving import complain, raise_file_limit, until_signal
from .watch import Watch, serve_until

log = logging.getLogger(__name__)


def run_broker(options: argparse.Namespace) -> int:
    try:
        config, store_config, without_effect = load(_values(options))
    except BadSetting as error:
        complain(str(error))
        return 2
    set_up(config.log_format, config.log_level, config.name)
    for key in without_effect:
        log.warning("%s has no effect here", key)
    raise_file_limit()
    keep_freed_memory()
    return run(_serve(config, store_config, options))


def _values(options: argparse.Namespace) -> dict[str, Any]:
    flags = {
        "namesrvAddr": ("-n", ";".join(options.namesrv) if options.namesrv else None),
        "brokerName": ("--name", options.name),
        "bindAddress": ("--host", options.host),
        "listenPort": ("--port", options.port),
        "storePathRootDir": ("--data-dir", options.data_dir),
        "log.level": ("-v", "INFO" if options.verbose else None),
    }
    return values(given("broker", options, flags))


async def _serve(
    config: BrokerConfig, store_config: StoreConfig, options: argparse.Namespace
) -> int:
    ended = until_signal(or_stdin_ends=options.until_stdin_ends)
    try:
        broker = Broker(config, store_config, on_failure=exit_on_failure)
        await broker.start()
    except BadSetting as error:
        complain(str(error))
        return 2
    except (OSError, StoreError) as error:
        complain(f"no broker at {config.bind_address}:{config.port}: {error}")
        return 1
    try:
        watch = Watch(config, config.bind_address, of_broker(broker))
        reread = functools.partial(_reread, broker, options) if options.config else None
        await serve_until(ended, f"broker={config.name}@{broker.address}", watch, reread)
    finally:
        await broker.stop()
    return 0


async def _reread(broker: Broker, options: argparse.Namespace) -> tuple[list[str], list[str]]:
    config, store_config, _ = load(_values(options))
    return await broker.renew(config, store_config)
