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
from cometmq.broker.config import DEFAULT_PORT, load
from cometmq.namesrv.config import DEFAULT_PORT as NAMESRV_PORT
from cometmq.namesrv.config import NamesrvConfig
from cometmq.namesrv.kv_config import KvConfigDamaged
from cometmq.namesrv.server import NameServer
from cometmq.settings import BadSetting
from cometmq.store.config import FlushMode
from cometmq.store.errors import StoreError
from cometmq.store.failure import exit_on_failure
from cometmq.transport.loop import run
from cometmq.transport.memory import keep_freed_memory

from .broker import DEFAULT_DATA_DIR
from .serving import complain, raise_file_limit, say_ready, until_signal

Commands = Any  # argparse does not name the type of its sub-parsers
PORT_STEP = 10
"""Between two brokers; each has ports beside its own."""
BROKERS_MAX = 26
CHILD_START_S = 60.0
CHILD_STOP_S = 30.0


def add_commands(commands: Commands) -> None:
    parser = commands.add_parser(
        "standalone",
        help="run a NameServer and brokers with one command",
        description="A whole cluster in the foreground, until SIGTERM or SIGINT.",
    )
    parser.add_argument(
        "--data-dir", type=Path, default=DEFAULT_DATA_DIR, metavar="DIR",
        help=f"where everything is kept (./{DEFAULT_DATA_DIR})",
    )  # fmt: skip
    parser.add_argument(
        "--namesrv-port", type=int, default=NAMESRV_PORT, metavar="PORT",
        help=f"port of the NameServer ({NAMESRV_PORT}); 0: a free one",
    )  # fmt: skip
    parser.add_argument(
        "--broker-port", type=int, default=DEFAULT_PORT, metavar="PORT",
        help=f"port of the first broker ({DEFAULT_PORT}), others {PORT_STEP} higher; 0: free ones",
    )  # fmt: skip
    parser.add_argument(
        "--brokers", type=int, default=1, metavar="N", help="how many brokers, a process each (1)"
    )
    parser.add_argument(
        "--flush", choices=("async", "sync"), default="async",
        help="sync: acknowledge a message when the disk has it (async)",
    )  # fmt: skip
    parser.add_argument("--host", default="127.0.0.1", help="address of all of them (127.0.0.1)")
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
    try:
        namesrv = NameServer(
            NamesrvConfig(
                bind_address=options.host,
                port=options.namesrv_port,
                kv_config_path=options.data_dir / "namesrv" / "kvConfig.json",
            )
        )
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
    say_ready(f"namesrv={namesrv.address} brokers={config.name}@{broker.address}")
    await ended.wait()
    await broker.stop()
    return 0


async def _with_children(
    options: argparse.Namespace, namesrv: NameServer, ended: asyncio.Event
) -> int:
    children: list[asyncio.subprocess.Process] = []
    try:
        for number in range(options.brokers):
            children.append(await _start_child(options, number, namesrv))  # noqa: PERF401
        addresses = [await _ready(child) for child in children]
        if None in addresses:
            complain("a broker did not start; its message stands above")
            return 1
        say_ready(f"namesrv={namesrv.address} brokers={','.join(filter(None, addresses))}")
        return await _until_end(children, ended)
    finally:
        await asyncio.gather(*(_stop(child) for child in children))


async def _start_child(
    options: argparse.Namespace, number: int, namesrv: NameServer
) -> asyncio.subprocess.Process:
    settings = _settings(options, number, namesrv)
    conf = options.data_dir / f"{settings['brokerName']}.conf"
    conf.parent.mkdir(parents=True, exist_ok=True)
    conf.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
    return await asyncio.create_subprocess_exec(
        sys.executable, "-m", "cometmq.cli.main", "broker", "-c", str(conf), "--until-stdin-ends",
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        env=dict(os.environ),
    )  # fmt: skip


async def _ready(child: asyncio.subprocess.Process) -> str | None:
    """The child's address from its own line `ready broker=…`; None when it does not come."""
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


def _settings(options: argparse.Namespace, number: int, namesrv: NameServer) -> dict[str, Any]:
    name = _name(number)
    port = options.broker_port + number * PORT_STEP if options.broker_port else 0
    flush = FlushMode.SYNC if options.flush == "sync" else FlushMode.ASYNC
    return {
        "brokerName": name,
        "bindAddress": options.host,
        "listenPort": port,
        "namesrvAddr": str(namesrv.address),
        "storePathRootDir": options.data_dir / name,
        "flushDiskType": flush.value,
    }


def _name(number: int) -> str:
    return f"broker-{string.ascii_lowercase[number]}"
