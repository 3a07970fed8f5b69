"""`cometmq standalone`: a NameServer and its brokers with one command.

One broker lives in this process; several are processes of their own, since one broker is one event
loop. They end with this one, however it ends.
"""

import argparse
import asyncio
import os
import string
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from cometmq.broker.broker import Broker
from cometmq.broker.config import load
from cometmq.logs import set_up
from cometmq.namesrv.config import load as load_namesrv
from cometmq.namesrv.kv_config import KvConfigDamaged
from cometmq.namesrv.server import NameServer
from cometmq.observed import MetricsExporter
from cometmq.ports import BROKER_PORT, NAMESRV_PORT
from cometmq.settings import BadSetting, text
from cometmq.sources import values, variable
from cometmq.store.config import FlushMode
from cometmq.store.errors import StoreError
from cometmq.store.failure import exit_on_failure
from cometmq.transport.loop import run
from cometmq.transport.memory import keep_freed_memory
from cometmq.web.pages import of_broker, of_name_server

from .arguments import DEFAULT_DATA_DIR, add_settings_options
from .roles import given
from .serving import complain, raise_file_limit, say_ready, until_signal
from .watch import Watch, serve_until

PORT_STEP = 10
"""Between two brokers; each has ports beside its own."""
BROKERS_MAX = 26
CHILD_START_S = 60.0
CHILD_STOP_S = 30.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.description = "A whole cluster in the foreground, until SIGTERM or SIGINT."
    parser.add_argument(
        "--data-dir", type=Path, default=DEFAULT_DATA_DIR, metavar="DIR",
        help=f"where everything is kept (./{DEFAULT_DATA_DIR})",
    )  # fmt: skip
    parser.add_argument(
        "--namesrv-port", type=int, default=NAMESRV_PORT, metavar="PORT",
        help=f"port of the NameServer ({NAMESRV_PORT}); 0: a free one",
    )  # fmt: skip
    parser.add_argument(
        "--broker-port", type=int, default=BROKER_PORT, metavar="PORT",
        help=f"port of the first broker ({BROKER_PORT}), others {PORT_STEP} higher; 0: free ones",
    )  # fmt: skip
    parser.add_argument(
        "--brokers", type=int, default=1, metavar="N", help="how many brokers, a process each (1)"
    )
    parser.add_argument(
        "--flush", choices=("async", "sync"),
        help="sync: acknowledge a message when the disk has it (async)",
    )  # fmt: skip
    parser.add_argument("--host", default="127.0.0.1", help="address of all of them (127.0.0.1)")
    parser.add_argument(
        "--metrics-port", type=int, metavar="PORT",
        help="answer Prometheus there, and at the next ports for several brokers; 0: free ones",
    )  # fmt: skip
    add_settings_options(parser)
    parser.set_defaults(run=run_standalone)


def run_standalone(options: argparse.Namespace) -> int:
    if not 1 <= options.brokers <= BROKERS_MAX:
        complain(f"--brokers {options.brokers}: 1 to {BROKERS_MAX} are possible")
        return 2
    raise_file_limit()
    keep_freed_memory()
    try:
        return run(_serve(options))
    except BadSetting as error:
        complain(str(error))
        return 2


async def _serve(options: argparse.Namespace) -> int:
    ended = until_signal()
    config, _ = load_namesrv(_namesrv_settings(options))
    set_up(config.log_format, config.log_level, "standalone")
    try:
        namesrv = NameServer(config)
        await namesrv.start()
    except (OSError, KvConfigDamaged) as error:
        complain(f"no NameServer at {options.host}:{options.namesrv_port}: {error}")
        return 1
    try:
        if options.brokers == 1:
            return await _with_own_broker(options, namesrv, ended)
        return await _with_children(options, namesrv, ended)
    finally:
        await namesrv.stop()


async def _with_own_broker(
    options: argparse.Namespace, namesrv: NameServer, ended: asyncio.Event
) -> int:
    config, store_config, _ = load(_settings(options, 0, namesrv))
    broker = Broker(config, store_config, on_failure=exit_on_failure)
    try:
        await broker.start()
    except (OSError, StoreError) as error:
        complain(f"no broker at {config.bind_address}:{config.port}: {error}")
        return 1
    # One process, one endpoint, for both.
    observed = of_name_server(namesrv), of_broker(broker)
    try:
        ready = f"namesrv={namesrv.address} brokers={config.name}@{broker.address}"
        await serve_until(ended, ready, Watch(config, config.bind_address, *observed))
    finally:
        await broker.stop()
    return 0


async def _with_children(
    options: argparse.Namespace, namesrv: NameServer, ended: asyncio.Event
) -> int:
    children: list[asyncio.subprocess.Process] = []
    config = namesrv.state.config
    try:
        async with Watch(config, config.bind_address, of_name_server(namesrv)) as watch:
            for number in range(options.brokers):
                children.append(await _start_child(options, number, namesrv))  # noqa: PERF401
            said = [await _ready(child) for child in children]
            if None in said:
                complain("a broker did not start; its message stands above")
                return 1
            found = [one.partition(" metrics=") for one in said if one is not None]
            addresses = ",".join(address for address, _, _ in found)
            say_ready(
                f"namesrv={namesrv.address} brokers={addresses}",
                watch.address, *(metrics for _, _, metrics in found),
            )  # fmt: skip
            return await _until_end(children, ended)
    finally:
        await asyncio.gather(*(_stop(child) for child in children))


async def _start_child(
    options: argparse.Namespace, number: int, namesrv: NameServer
) -> asyncio.subprocess.Process:
    settings = _settings(options, number, namesrv)
    conf = options.data_dir / f"{settings['brokerName']}.conf"
    conf.parent.mkdir(parents=True, exist_ok=True)
    conf.write_text("".join(f"{key}={text(value)}\n" for key, value in settings.items()))
    # All that the environment says about brokers stands in the file, with what is each one's own.
    inherited = {k: v for k, v in os.environ.items() if not k.startswith(variable("broker", ""))}
    return await asyncio.create_subprocess_exec(
        sys.executable, "-m", "cometmq.cli.main", "broker", "-c", str(conf), "--until-stdin-ends",
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        env=inherited,
    )  # fmt: skip


async def _ready(child: asyncio.subprocess.Process) -> str | None:
    """What the child says behind `ready broker=`, its address first; None when it does not."""
    assert child.stdout is not None
    try:
        async with asyncio.timeout(CHILD_START_S):
            line = (await child.stdout.readline()).decode().strip()
    except TimeoutError:
        return None
    return line.removeprefix("ready broker=") if line.startswith("ready broker=") else None


async def _until_end(children: Sequence[asyncio.subprocess.Process], ended: asyncio.Event) -> int:
    deaths = [asyncio.ensure_future(child.wait()) for child in children]
    signalled = asyncio.ensure_future(ended.wait())
    done, _ = await asyncio.wait([*deaths, signalled], return_when=asyncio.FIRST_COMPLETED)
    signalled.cancel()
    if ended.is_set():
        return 0
    dead = next(number for number, death in enumerate(deaths) if death in done)
    complain(f"{_name(dead)} ended with {deaths[dead].result()}; the others are stopped")
    return 1


async def _stop(child: asyncio.subprocess.Process) -> None:
    if child.returncode is None:
        child.terminate()
    try:
        async with asyncio.timeout(CHILD_STOP_S):
            await child.wait()
    except TimeoutError:
        child.kill()
        await child.wait()


def _namesrv_settings(options: argparse.Namespace) -> dict[str, Any]:
    flags = {
        "bindAddress": ("--host", options.host),
        "listenPort": ("--namesrv-port", options.namesrv_port),
        "kvConfigPath": ("--data-dir", options.data_dir / "namesrv" / "kvConfig.json"),
        **_observed(options, 0),
    }
    # Files and --set are for brokers.
    nothing = argparse.Namespace(config=[], settings=[])
    return values(given("namesrv", nothing, flags))


def _settings(options: argparse.Namespace, number: int, namesrv: NameServer) -> dict[str, Any]:
    name = _name(number)
    port = options.broker_port + number * PORT_STEP if options.broker_port else 0
    flush = FlushMode[options.flush.upper()].value if options.flush else None
    several = options.brokers > 1
    flags = {
        "brokerName": ("--brokers", name),
        "bindAddress": ("--host", options.host),
        "listenPort": ("--broker-port", port),
        "namesrvAddr": ("--namesrv-port", str(namesrv.address)),
        "storePathRootDir": ("--data-dir", options.data_dir / name),
        "flushDiskType": ("--flush", flush),
        **_observed(options, number + several),
    }
    return values(given("broker", options, flags))


def _observed(options: argparse.Namespace, distance: int) -> dict[str, tuple[str, Any]]:
    """Metrics and logs; several brokers have their ports one behind the other."""
    flags = {"log.level": ("-v", "INFO" if options.verbose else None)}
    port = options.metrics_port
    if port is None:
        return flags
    return flags | {
        "metricsExporterType": ("--metrics-port", MetricsExporter.PROM.value),
        "metricsPromExporterPort": ("--metrics-port", port + distance if port else 0),
    }


def _name(number: int) -> str:
    return f"broker-{string.ascii_lowercase[number]}"
