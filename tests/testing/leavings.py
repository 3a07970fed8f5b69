"""What an embedded broker leaves behind: threads, open files, sockets, tasks. Nothing, that is.

These tests look at the whole process, so `test_embedded.py` runs this file in one of its own.
"""

import asyncio
import contextlib
import threading
from pathlib import Path

import pytest

from cometmq.settings import BadSetting
from cometmq.testing import EmbeddedBroker
from tests.broker.brokers import TOPIC
from tests.testing.clients import connected


def left_over() -> tuple[set[str], set[str]]:
    """Threads, and what open files and sockets are: their numbers may change."""
    open_files = set()
    for link in list(Path("/proc/self/fd").iterdir()):
        with contextlib.suppress(FileNotFoundError):  # That of the listing itself.
            open_files.add(str(link.readlink()))
    return {thread.name for thread in threading.enumerate()}, open_files


@pytest.mark.parametrize("through_proxy", [False, True])
async def test_leaving_leaves_nothing_behind(through_proxy: bool) -> None:
    before = left_over(), asyncio.all_tasks()
    async with EmbeddedBroker(brokers=2, through_proxy=through_proxy) as broker:
        await broker.create_topic(TOPIC)
        async with connected(broker.namesrv) as client:
            await client.ask(105, {"topic": TOPIC})
        async with connected(broker.address) as client:
            later = {"TIMER_DELAY_SEC": "3600"}
            assert (await client.send(properties=later)).code == 0
        await broker.restart(abrupt=True)
        await broker.stop_broker(1)
        directory = broker.directory
        assert (directory / "broker-a" / "commitlog").is_dir()
        assert any("cometmq" in name for name in left_over()[0])
    await asyncio.sleep(0)
    assert not directory.exists()
    assert (left_over(), asyncio.all_tasks()) == before


def test_a_blocking_broker_leaves_nothing_behind_either() -> None:
    before = left_over()
    with EmbeddedBroker(through_proxy=True) as broker:
        broker.create_topic(TOPIC)
        directory = broker.directory
        assert "cometmq-testing" in left_over()[0]
    assert not directory.exists()
    assert left_over() == before


async def test_a_failed_start_leaves_nothing_behind_and_says_why() -> None:
    before = left_over(), asyncio.all_tasks()
    with pytest.raises(BadSetting, match="defaultTopicQueueNums"):
        async with EmbeddedBroker(settings={"defaultTopicQueueNums": -1}):
            pytest.fail("it started")
    assert (left_over(), asyncio.all_tasks()) == before
