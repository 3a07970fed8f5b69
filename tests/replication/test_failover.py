"""Masters and slaves as processes, killed. A sender writes down what it was told is stored."""

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from cometmq.broker.config import FAST_PORT_DISTANCE
from cometmq.protocol.record import iter_records
from cometmq.store.config import StoreConfig
from cometmq.store.message_store import MessageStore
from cometmq.testing.ports import ReservedPort
from tests.broker.brokers import Client, until
from tests.replication.pairs import QUICK, log_bytes

LOOPS = ["asyncio"]
ROUNDS = int(os.environ.get("COMETMQ_CHAOS_ROUNDS", "3"))
TEST_TIMEOUT_S = 120.0 + 30.0 * ROUNDS
pytestmark = pytest.mark.timeout(TEST_TIMEOUT_S + 30)
START_S = 60.0
SENDERS = 8


class Process:
    """`cometmq broker` over a directory; the port stays over restarts."""

    def __init__(self, root: Path, **settings: Any) -> None:
        self.root = root
        self._port = ReservedPort(FAST_PORT_DISTANCE)
        self._ha_port = ReservedPort()
        self.address = f"127.0.0.1:{self._port.number}"
        self.ha_address = f"127.0.0.1:{self._ha_port.number}"
        self._settings = {
            **QUICK,
            "listenPort": self._port.number,
            "haListenPort": self._ha_port.number,
            "storePathRootDir": root,
            "mappedFileSizeConsumeQueue": 20 * 1000,
            "maxHashSlotNum": 1000,
            "maxIndexNum": 5000,
            **settings,
        }
        self._process: subprocess.Popen[bytes] | None = None

    async def start(self, **changes: Any) -> None:
        self.root.mkdir(parents=True, exist_ok=True)
        conf = self.root.parent / f"{self.root.name}.conf"
        conf.write_text("".join(f"{k}={v}\n" for k, v in {**self._settings, **changes}.items()))
        output = self.root.parent / f"{self.root.name}.out"
        with output.open("ab") as out:
            before = out.tell()
            self._process = subprocess.Popen(
                [sys.executable, "-m", "cometmq.cli.main", "-v", "broker", "-c", str(conf)],
                stdin=subprocess.DEVNULL, stdout=out, stderr=out,
            )  # fmt: skip
        await until(lambda: b"\nready " in b"\n" + output.read_bytes()[before:], START_S)

    def kill(self) -> None:
        if self._process is not None:
            self._process.send_signal(signal.SIGKILL)
            self._process.wait()
            self._process = None

    def end(self) -> None:
        self.kill()
        self._port.release()
        self._ha_port.release()


class Ledger:
    """What senders were told."""

    def __init__(self) -> None:
        self.stored: set[bytes] = set()
        self.sent = 0

    async def send(self, address: str, *, until_broken: bool = True) -> None:
        """Send one after the other until the connection breaks."""
        client = await Client.to(address)
        try:
            while True:
                self.sent += 1
                body = b"message %d" % self.sent
                answer = await client.send("orders", body, queue_id=self.sent % 4)
                if answer.code == 0:
                    self.stored.add(body)
        except Exception:  # noqa: BLE001 - whatever a broken connection raises
            assert until_broken
        finally:
            client.connection.abort()


async def bodies_at(address: str) -> set[bytes]:
    client = await Client.to(address)
    found = set()
    for queue_id in range(4):
        found |= {m.body for m in await client.pulled("orders", queue_id)}
    client.close()
    return found


def stored_in(root: Path) -> set[bytes]:
    """What a dead broker's store holds, recovered."""
    with MessageStore(config_of(root)) as store:
        found = set()
        for queue_id in range(4):
            offset = store.min_offset("orders", queue_id)
            while True:
                result = store.read("orders", queue_id, offset, count_max=1000)
                for piece in result.slices:
                    found |= {m.body for m in iter_records(piece)}
                if result.next_offset <= offset:
                    break
                offset = result.next_offset
        return found


@pytest.fixture
def pair(tmp_path: Path) -> Any:
    master = Process(tmp_path / "master", brokerRole="SYNC_MASTER", inSyncReplicas=2)
    slave = Process(
        tmp_path / "slave", brokerRole="SLAVE", brokerId=1, haMasterAddress=master.ha_address
    )
    yield master, slave
    master.end()
    slave.end()


async def following(master: Process) -> None:
    """Until a message is acknowledged by the slave."""
    client = await Client.to(master.address)
    async with asyncio.timeout(30):
        while (await client.send("warm-up", b"x")).code != 0:
            await asyncio.sleep(0.05)
    client.close()


async def test_nothing_acknowledged_is_lost_with_the_master(
    pair: tuple[Process, Process],
) -> None:
    """The machine of the master is gone for good: its store is not looked at again."""
    master, slave = pair
    await master.start()
    await slave.start()
    await following(master)
    ledger = Ledger()
    senders = [asyncio.create_task(ledger.send(master.address)) for _ in range(SENDERS)]
    await until(lambda: len(ledger.stored) > 400, 60)
    master.kill()
    await asyncio.gather(*senders)
    slave.kill()
    await slave.start(brokerRole="ASYNC_MASTER", brokerId=0)
    found = await bodies_at(slave.address)
    assert ledger.stored <= found
    client = await Client.to(slave.address)
    assert (await client.send("orders", b"and on")).code == 0
    client.close()


async def test_kills_of_either_leave_equal_logs(pair: tuple[Process, Process]) -> None:
    master, slave = pair
    await master.start()
    await slave.start()
    await following(master)
    ledger = Ledger()
    for number in range(ROUNDS):
        enough = len(ledger.stored) + 100
        senders = [asyncio.create_task(ledger.send(master.address)) for _ in range(SENDERS)]
        await until(lambda enough=enough: len(ledger.stored) > enough, 60)  # type: ignore[misc]
        doomed = (master, slave)[number % 2]
        doomed.kill()
        if doomed is slave:
            await asyncio.sleep(0.2)
            master.kill()  # So that the senders end, too; also both at once.
            await asyncio.gather(*senders)
            await master.start()
        else:
            await asyncio.gather(*senders)
        await doomed.start()
        await following(master)
    master.kill()
    slave.kill()
    at_master, at_slave = stored_in(master.root), stored_in(slave.root)
    assert ledger.stored <= at_master
    assert ledger.stored <= at_slave
    end = min(log_end(master.root), log_end(slave.root))
    assert log_bytes(master.root, end) == log_bytes(slave.root, end)


def log_end(root: Path) -> int:
    with MessageStore(config_of(root)) as store:
        return store.appended.value


def config_of(root: Path) -> StoreConfig:
    return StoreConfig(
        root=root, commit_log_file_bytes=QUICK["mappedFileSizeCommitLog"],
        consume_queue_file_bytes=20 * 1000, index_slots=1000, index_items=5000,
    )  # fmt: skip
