"""A real standalone cluster, master and two workers as processes."""

import os
import platform
import signal
import stat
import sys
import sysconfig
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

import cometmq

from .clusters import StandaloneCluster
from .drivers import SMALL, Driver
from .same_results import (
    Orders,
    orders,
    places,
    test_a_batch,
    test_a_batch_with_a_filter_and_split_queues,
    test_a_batch_written,
    test_a_join_and_a_shuffle,
    test_a_stores_files,
    test_a_stream,
    test_a_stream_from_topic_to_topic,
    test_what_is_wrong_is_told,
)
from .streaming import until

__all__ = [
    "orders",
    "test_a_batch",
    "test_a_batch_with_a_filter_and_split_queues",
    "test_a_batch_written",
    "test_a_join_and_a_shuffle",
    "test_a_stores_files",
    "test_a_stream",
    "test_a_stream_from_topic_to_topic",
    "test_what_is_wrong_is_told",
]


pytestmark = pytest.mark.timeout(900)  # Several Java processes start on whatever machine this is.


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StandaloneCluster]:
    with StandaloneCluster(tmp_path_factory.mktemp("cluster")) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def driver(
    cluster: StandaloneCluster, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Driver]:
    log = tmp_path_factory.mktemp("driver") / "driver.log"
    both = {**SMALL, "spark.executor.cores": "1", "spark.cores.max": "2"}
    with Driver(log, cluster.master, both) as driver:
        yield driver


def test_workers_have_our_code_and_both_of_them_work(
    cluster: StandaloneCluster, driver: Driver
) -> None:
    ours, *workers = driver.ask("codec")
    assert workers == [ours]
    assert Path(ours[0]) == Path(cometmq.__file__)
    for worker in cluster.workers:
        assert "Asked to launch executor" in worker.log.read_text()


def test_the_doctor_asks_the_workers(cluster: StandaloneCluster, driver: Driver) -> None:
    what, found, advice = driver.ask("doctor", master=cluster.master)
    assert what == f"workers at {cluster.master}"
    assert f"Python {platform.python_version()}, " in found
    assert not advice


# -- what fails ----------------------------------------------------------------------------------


def halted(driver: Driver, orders: Orders, directory: Path) -> list[int]:
    """The processes of the Python workers, one on each worker, in the middle of a task."""
    driver.begin("halting", directory=str(directory), **orders.options)
    until(lambda: len(list(directory.glob("worker-*"))) == 2)
    return sorted(int(path.name.partition("-")[2]) for path in directory.glob("worker-*"))


def test_a_python_worker_killed_in_the_middle_of_a_task(
    driver: Driver, orders: Orders, tmp_path: Path
) -> None:
    first, _ = halted(driver, orders, tmp_path)
    os.kill(first, signal.SIGKILL)
    (tmp_path / "go").touch()
    assert places(driver.finish()) == orders.sent


def test_a_worker_killed_in_the_middle_of_a_task(
    cluster: StandaloneCluster, driver: Driver, orders: Orders, tmp_path: Path
) -> None:
    """All that it had started goes with it; the other one does its work."""
    working = halted(driver, orders, tmp_path)
    cluster.workers[0].kill()
    until(lambda: sum(is_running(process) for process in working) == 1)
    (tmp_path / "go").touch()
    assert places(driver.finish()) == orders.sent
    assert places(driver.ask("batch", **orders.options)) == orders.sent


def is_running(process: int) -> bool:
    try:
        state = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"


# -- code that travels ---------------------------------------------------------------------------


@pytest.fixture
def code(tmp_path: Path) -> Path:
    """Our package in a zip, from which Python takes no compiled code."""
    package, made = Path(cometmq.__file__).parent, tmp_path / "cometmq.zip"
    with zipfile.ZipFile(made, "w") as archive:
        for path in package.rglob("*.py"):
            archive.write(path, path.relative_to(package.parent))
    return made


@pytest.fixture
def bare_python(tmp_path: Path) -> Path:
    """A Python that has all that we need, but not us: our package is installed by a file that
    only `site` reads."""
    command, packages = tmp_path / "python", sysconfig.get_path("purelib")
    command.write_text(
        f'#!/bin/sh\nPYTHONPATH="$PYTHONPATH:{packages}" exec {sys.executable} -S "$@"\n'
    )
    command.chmod(command.stat().st_mode | stat.S_IXUSR)
    return command


def test_code_can_travel_in_a_zip(
    cluster: StandaloneCluster, code: Path, bare_python: Path, orders: Orders, tmp_path: Path
) -> None:
    environment = {
        "PYTHONPATH": os.pathsep.join([str(code), str(Path(__file__).parents[2])]),
        "PYSPARK_PYTHON": str(bare_python),
        "PYSPARK_DRIVER_PYTHON": str(bare_python),
    }
    settings = {**SMALL, "spark.cores.max": "1"}
    with Driver(
        tmp_path / "driver.log", cluster.master, settings, python=bare_python,
        submit=("--py-files", str(code)), environment=environment,
    ) as driver:  # fmt: skip
        (file, is_fast), *workers = driver.ask("codec")
        assert file == str(code / "cometmq" / "__init__.py")
        assert not is_fast
        assert workers
        for file, is_fast in workers:
            assert "cometmq.zip" in file
            assert not is_fast
        assert places(driver.ask("batch", **orders.options)) == orders.sent
