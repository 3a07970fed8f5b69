"""What `cometmq spark doctor` looks at: everything that Spark needs to read and write our topics.

Each check tells what it found and, where that will not do, what to do about it. None changes
anything; the query runs on a store of its own in a temporary directory.
"""

import asyncio
import importlib.metadata
import os
import platform
import re
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from cometmq import __version__
from cometmq.client import Admin
from cometmq.client.errors import ClientError
from cometmq.protocol import hot
from cometmq.protocol.message import Message
from cometmq.store.config import StoreConfig
from cometmq.store.message_store import MessageStore

from .errors import NotReady
from .java import find_java
from .pipelines.failures import plain
from .quiet import NO_BAR, prepare_quiet, silence
from .session import FORMATS, LOCAL, is_connect_address, session

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

PYTHON_MIN: Final = (3, 11)
PYSPARK_MIN: Final = (4, 2)
PANDAS_BELOW: Final = (3,)
MEMORY_BYTES_MIN: Final = 1536 << 20
"""Java takes 1 GiB unless it is told otherwise; Python's workers come on top."""
DISK_BYTES_MIN: Final = 1 << 30
ANSWER_TIMEOUT_S: Final = 60
_NAME: Final = "cometmq spark doctor"
_TASKS: Final = 8
_WHO: Final = "host string, python string, version string, codec string"
_INSTALL: Final = "pip install 'cometmq[spark]'"
_ALL_SAID: Final = "`cometmq -v spark doctor` shows all that Spark says"


class Finding(NamedTuple):
    what: str
    found: str
    advice: str = ""
    """What to do; empty when all is well."""

    @property
    def is_well(self) -> bool:
        return not self.advice


def examine(
    namesrv: str = "", *, query: bool = True, master: str = LOCAL, quiet: bool = True
) -> Iterator[Finding]:
    """All checks, one after the other; the query only when nothing before it is missing. With a
    master that is not this machine its workers are asked instead. `quiet`: without Spark's own
    lines."""
    wrong = False
    for finding in _without_spark(master):
        wrong |= not finding.is_well
        yield finding
    if namesrv:
        yield nameserver(namesrv)
    if query and wrong:
        yield Finding("a query", "not tried", "mend the above first")
    elif query:
        is_local = master.startswith("local")
        yield a_query(quiet=quiet) if is_local else workers_at(master, quiet=quiet)


def _without_spark(master: str) -> Iterator[Finding]:
    yield python()
    yield package("pyspark", at_least=PYSPARK_MIN)
    for name in ("pyarrow", "numpy", "deltalake", "fsspec"):
        yield package(name)
    yield package("pandas", below=PANDAS_BELOW)
    if is_connect_address(master):  # Java, workers, memory and disk are the server's matter.
        yield package("grpcio", advice="pip install 'cometmq[connect]'")
        return
    yield java()
    yield workers_python()
    yield memory()
    yield disk()


# -- what is installed ---------------------------------------------------------------------------


def python() -> Finding:
    found = ".".join(map(str, sys.version_info[:3]))
    if sys.version_info < PYTHON_MIN:
        return Finding("Python", found, f"use Python {_dotted(PYTHON_MIN)} or newer")
    return Finding("Python", found)


def package(
    name: str,
    *,
    at_least: tuple[int, ...] = (),
    below: tuple[int, ...] = (),
    advice: str = _INSTALL,
) -> Finding:
    try:
        found = importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return Finding(name, "missing", advice)
    version = tuple(int(number) for number in re.findall(r"\d+", found)[:3])
    if version < at_least:
        return Finding(name, found, f"pip install '{name}>={_dotted(at_least)}'")
    if below and version >= below:
        return Finding(name, found, f"pip install '{name}<{_dotted(below)}': Spark needs it older")
    return Finding(name, found)


def java() -> Finding:
    try:
        found = find_java()
    except NotReady as error:
        return Finding("Java", "missing", str(error))
    return Finding("Java", f"{found.version}, from {found.found_in} ({found.home})")


def workers_python() -> Finding:
    """Workers are processes of their own, and must have the same Python and our packages."""
    what, command = "workers' Python", os.environ.get("PYSPARK_PYTHON", sys.executable)
    asks = "import sys, cometmq.protocol, pyarrow; print('%d.%d' % sys.version_info[:2])"
    try:
        told = subprocess.run(  # noqa: S603 - what Spark will run
            [command, "-c", asks], capture_output=True, text=True, timeout=ANSWER_TIMEOUT_S,
            check=False,
        )  # fmt: skip
    except (OSError, subprocess.SubprocessError) as error:
        return Finding(what, f"{command}: {error}", f"set PYSPARK_PYTHON={sys.executable}")
    if told.returncode:
        reason = told.stderr.strip().rpartition("\n")[2]
        return Finding(what, f"{command}: {reason}", f"there, {_INSTALL}; or unset PYSPARK_PYTHON")
    found, ours = told.stdout.strip(), _dotted(sys.version_info[:2])
    if found != ours:
        return Finding(what, f"{command} is {found}", f"the driver has {ours}: both must be alike")
    return Finding(what, command)


# -- what the machine has ------------------------------------------------------------------------


def memory() -> Finding:
    available = _memory_available()
    if available is None:
        return Finding("memory", "not known on this system")
    found = f"{available / 1024**3:.1f} GiB available"
    if available < MEMORY_BYTES_MIN:
        return Finding("memory", found, f"Spark wants {MEMORY_BYTES_MIN / 1024**3:.1f} GiB or more")
    return Finding("memory", found)


def _memory_available() -> int | None:
    try:
        told = Path("/proc/meminfo").read_text()
    except OSError:
        return None
    match = re.search(r"^MemAvailable:\s+(\d+) kB", told, re.MULTILINE)
    return int(match[1]) * 1024 if match else None


def disk() -> Finding:
    """Where Spark spills to."""
    place = os.environ.get("SPARK_LOCAL_DIRS", "").split(",")[0] or tempfile.gettempdir()
    try:
        free = shutil.disk_usage(place).free
    except OSError as error:
        return Finding("disk", str(error), f"make {place}, or set SPARK_LOCAL_DIRS")
    found = f"{free / 1024**3:.1f} GiB free in {place}"
    if free < DISK_BYTES_MIN:
        return Finding("disk", found, "set SPARK_LOCAL_DIRS to a directory with more room")
    return Finding("disk", found)


# -- what answers --------------------------------------------------------------------------------


def nameserver(addresses: str) -> Finding:
    async def brokers() -> list[str]:
        async with Admin(addresses) as admin:
            return sorted((await admin.brokers.cluster_info()).broker_addr_table)

    what = f"NameServer {addresses}"
    try:
        names = asyncio.run(asyncio.wait_for(brokers(), ANSWER_TIMEOUT_S))
    except (ClientError, OSError, ValueError, TimeoutError) as error:
        advice = "is it running, and reachable from here? `cometmq namesrv` starts one"
        return Finding(what, f"no answer: {str(error) or 'too late'}", advice)
    if not names:
        return Finding(what, "knows no broker", "start a broker with this NameServer")
    return Finding(what, f"knows {', '.join(names)}")


def a_query(*, quiet: bool = True) -> Finding:
    """Our formats in a real session: one is asked for its columns, one reads a store."""
    what = "a query"
    try:
        count = _read_a_store(quiet=quiet)
    except Exception as error:  # noqa: BLE001 - whatever Spark, Java or a worker raises
        return Finding(what, f"failed: {plain(error)}", _ALL_SAID)
    if count != 1:
        return Finding(what, f"read {count} rows instead of 1", "this is a bug; please report it")
    names = " and ".join(name for name, _, _ in FORMATS)
    return Finding(what, f"{names} are there, and a row was read")


def workers_at(master: str, *, quiet: bool = True) -> Finding:
    """A job whose tasks say which Python and which of our code they have."""
    what = f"workers at {master}"
    try:
        spark = _session(master, quiet=quiet)
        rows = spark.range(0, _TASKS, 1, _TASKS).mapInArrow(_who, _WHO).distinct().collect()
    except Exception as error:  # noqa: BLE001 - whatever Spark, Java or a worker raises
        return _failed_at(what, error)
    others = [row for row in rows if row.version != __version__]
    if others:
        found = f"{others[0].host} has cometmq {others[0].version}"
        return Finding(what, found, f"here it is {__version__}: have them alike")
    return Finding(what, "; ".join(f"{row.host}: {row.python}, {row.codec}" for row in rows))


def _failed_at(what: str, error: Exception) -> Finding:
    if missing := re.search(r"No module named '(\w+)", str(error)):
        advice = f"{_INSTALL} for the workers' Python; cometmq alone can also be sent (--py-files)"
        return Finding(what, f"they have no {missing[1]}", advice)
    return Finding(what, f"failed: {plain(error)}", _ALL_SAID)


def _who(_: "Iterator[pa.RecordBatch]") -> "Iterator[pa.RecordBatch]":
    import pyarrow as pa

    yield pa.RecordBatch.from_pylist([{
        "host": socket.gethostname(), "python": f"Python {platform.python_version()}",
        "version": __version__, "codec": "compiled" if hot.COMPILED else "plain Python",
    }])  # fmt: skip


def _session(master: str, *, quiet: bool) -> "SparkSession":
    if not quiet:
        return session(_NAME, master)
    prepare_quiet(master)
    spark = session(_NAME, master, **({} if is_connect_address(master) else NO_BAR))
    silence(spark)
    return spark


def _read_a_store(*, quiet: bool) -> int:
    with tempfile.TemporaryDirectory(prefix="cometmq-doctor-") as directory:
        _write_a_store(Path(directory))
        spark = _session("local[1]", quiet=quiet)
        assert "body" in spark.read.format("rocketmq").load().columns
        rows = spark.read.format("rocketmq-log").option("path", directory).load()
        return rows.where("topic = 'doctor' and cast(body as string) = 'well'").count()


def _write_a_store(root: Path) -> None:
    config = StoreConfig(
        root=root, commit_log_file_bytes=1 << 16, index_enabled=False,
        consume_queue_file_bytes=20 * 100,
    )  # fmt: skip
    store = MessageStore(config)
    store.open()
    store.append(Message("doctor", 0, b"well"))
    store.close()


def _dotted(numbers: tuple[int, ...]) -> str:
    return ".".join(map(str, numbers))
