"""Backup and restore as the documentation has them, with the real programs."""

import asyncio
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.broker.brokers import Client, bodies_in, bounded, settings_of
from tests.cli.test_reload import conf_of
from tests.cli.test_servers import Server, Start, start

__all__ = ["start"]
MESSAGES = 50
LEFT_OUT = ("--exclude=store/lock", "--exclude=store/abort")
WITHOUT_QUEUES = ("--exclude=store/consumequeue", "--exclude=store/index")


def run(*command: object) -> str:
    done = subprocess.run(
        [*map(str, command)], capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


async def client_of(server: Server) -> Client:
    line = await asyncio.to_thread(server.line)
    return await Client.to(line.strip().rpartition("@")[2])


def started(start: Start, home: Path) -> Server:
    home.mkdir(exist_ok=True)
    return start("broker", "-c", conf_of(home / "broker.conf", **settings_of(home / "store")))


@pytest.mark.parametrize("left_out", [(), WITHOUT_QUEUES], ids=["whole", "without-queues"])
@bounded
async def test_what_was_saved_is_served_again(
    tmp_path: Path, start: Start, left_out: tuple[str, ...]
) -> None:
    server = started(start, tmp_path / "old")
    client = await client_of(server)
    sent = [b"message %d" % number for number in range(MESSAGES)]
    for body in sent:
        await client.send(body=body, properties={"KEYS": "all"})
    await client.heartbeat("me", "billing")
    await client.commit(20)
    assert await asyncio.to_thread(server.ended, signal.SIGTERM) == 0

    backup, new = tmp_path / "backup.tar", tmp_path / "new"
    run("tar", "--sparse", "-C", tmp_path / "old", *LEFT_OUT, *left_out, "-cf", backup, "store")
    new.mkdir()
    run("tar", "-C", new, "-xf", backup)
    if not left_out:  # Without queue files it would take them for files of RocketMQ's size.
        recover = ("store", "recover", "--max-hash-slot-num", 1000, "--max-index-num", 5000)
        told = run(sys.executable, "-m", "cometmq.cli.main", *recover, new / "store")
        assert "damaged          0 places" in told

    restored = await client_of(started(start, new))
    found: list[bytes] = []
    while len(found) < MESSAGES:
        answer = await restored.pull(offset=len(found))
        assert answer.code == 0
        found += bodies_in(answer)
    assert found == sent
    assert await restored.offset_of() == 20
