"""A broker's start, its end, and what is between two of its lives."""

import asyncio
import contextlib
import dataclasses
import signal
import socket
import sys
from collections.abc import AsyncIterator, Iterable
from pathlib import Path

import pytest
import trustme

from cometmq.broker.config import FAST_PORT_DISTANCE
from cometmq.protocol.codes import ResponseCode
from cometmq.store.errors import StoreLocked, StoreMismatch
from cometmq.transport.errors import ConnectFailed, ConnectionClosed
from cometmq.transport.tls import client_context

from .brokers import TOPIC, Client, bounded, broker_of, context_of, serving, settings_of

START_S = 60.0


@dataclasses.dataclass(frozen=True)
class Certificates:
    chain: Path
    key: Path
    authority: Path


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    home = tmp_path_factory.mktemp("tls")
    authority = trustme.CA()
    issued = authority.issue_cert("127.0.0.1")
    issued.private_key_pem.write_to_path(home / "server.key")
    for number, blob in enumerate(issued.cert_chain_pems):
        blob.write_to_path(home / "server.pem", append=number > 0)
    authority.cert_pem.write_to_path(home / "authority.pem")
    return Certificates(home / "server.pem", home / "server.key", home / "authority.pem")


# -- start ---------------------------------------------------------------------------------------


@bounded
async def test_messages_and_tables_survive_a_restart(tmp_path: Path) -> None:
    for life in range(3):
        async with serving(tmp_path) as broker:
            client = await Client.to(broker)
            found = [message.body for message in await client.pulled(TOPIC)]
            assert found == [b"%d" % n for n in range(life)]
            assert (await client.send(body=b"%d" % life)).code == 0


@bounded
async def test_a_port_that_is_taken_leaves_nothing_behind(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        broker = broker_of(tmp_path, listenPort=taken.getsockname()[1])
        with pytest.raises(OSError, match="in use"):
            await broker.start()
    assert not (tmp_path / "commitlog").exists()
    async with serving(tmp_path):
        pass


@bounded
async def test_a_directory_that_is_taken_is_left_alone(tmp_path: Path) -> None:
    async with serving(tmp_path) as first:
        second = broker_of(tmp_path)
        with pytest.raises(StoreLocked):
            await second.start()
        client = await Client.to(first)
        assert (await client.send()).code == 0


@bounded
async def test_a_table_that_cannot_be_read_stops_the_start_in_order(tmp_path: Path) -> None:
    async with serving(tmp_path) as broker:
        client = await Client.to(broker)
        await client.send()
    file = tmp_path / "config" / "consumerOffset.json"
    file.write_bytes(b"nonsense")
    broker = broker_of(tmp_path)
    with pytest.raises(StoreMismatch, match=r"consumerOffset\.json cannot be read"):
        await broker.start()
    assert not (tmp_path / "abort").exists(), "the store was closed in order"
    file.unlink()
    async with serving(tmp_path) as again:
        client = await Client.to(again)
        assert len(await client.pulled(TOPIC)) == 1


@bounded
async def test_clients_of_the_second_port_are_served_too(tmp_path: Path) -> None:
    port = free_pair()
    async with serving(tmp_path, listenPort=port):
        client = await Client.to(f"127.0.0.1:{port - FAST_PORT_DISTANCE}")
        assert (await client.send()).code == 0
        assert (await client.pull()).code == 0


@bounded
async def test_a_second_port_that_is_taken_is_done_without(tmp_path: Path) -> None:
    port = free_pair()
    with socket.create_server(("127.0.0.1", port - FAST_PORT_DISTANCE)):
        async with serving(tmp_path, listenPort=port):
            client = await Client.to(f"127.0.0.1:{port}")
            assert (await client.send()).code == 0


@bounded
async def test_the_address_told_to_clients_can_be_chosen(tmp_path: Path) -> None:
    async with serving(tmp_path, brokerIP1="192.0.2.7") as broker:
        assert broker.address.ip == "192.0.2.7"
        client = await Client.to(f"127.0.0.1:{broker.address.port}")
        answer = await client.send()
        assert answer.text_fields()["msgId"].startswith("C0000207")


def free_pair() -> int:
    """A port that is free, as is the one so far below it."""
    for _ in range(100):
        with socket.create_server(("127.0.0.1", 0)) as first:
            port: int = first.getsockname()[1]
            with (
                contextlib.suppress(OSError),
                socket.create_server(("127.0.0.1", port - FAST_PORT_DISTANCE)),
            ):
                return port
    raise AssertionError("no two free ports")


# -- TLS -----------------------------------------------------------------------------------------


def tls_settings(certificates: Certificates, mode: str) -> dict[str, object]:
    return {
        "tls.server.mode": mode,
        "tls.server.certPath": certificates.chain,
        "tls.server.keyPath": certificates.key,
    }


@bounded
async def test_plain_and_encrypted_clients_share_messages(
    tmp_path: Path, certificates: Certificates
) -> None:
    async with serving(tmp_path, more=tls_settings(certificates, "permissive")) as broker:
        plain = await Client.to(broker)
        encrypted = await Client.to(broker, tls=client_context(certificates.authority))
        await plain.send(body=b"plain")
        await encrypted.send(body=bytes(200_000))
        for client in (plain, encrypted):
            found = [message.body for message in await client.pulled(TOPIC)]
            assert found == [b"plain", bytes(200_000)]


@bounded
async def test_a_broker_may_insist_on_encryption(
    tmp_path: Path, certificates: Certificates
) -> None:
    async with serving(tmp_path, more=tls_settings(certificates, "enforcing")) as broker:
        plain = await Client.to(broker)
        with pytest.raises(ConnectionClosed):
            await plain.send()
        encrypted = await Client.to(broker, tls=client_context())
        assert (await encrypted.send()).code == 0


@bounded
async def test_a_notice_reaches_an_encrypted_consumer(
    tmp_path: Path, certificates: Certificates
) -> None:
    async with serving(tmp_path, more=tls_settings(certificates, "permissive")) as broker:
        client = await Client.to(broker, tls=client_context())
        await client.heartbeat("me", "billing")
        assert await client.notice() == "billing"


# -- end -----------------------------------------------------------------------------------------


@bounded
async def test_after_a_stop_nobody_listens(tmp_path: Path) -> None:
    broker = broker_of(tmp_path)
    await broker.start()
    client, address = await Client.to(broker), str(broker.address)
    await broker.stop()
    assert not (tmp_path / "abort").exists()
    with pytest.raises(ConnectFailed):
        await Client.to(address)
    with pytest.raises(ConnectionClosed):
        await client.send()


@bounded
async def test_offsets_told_just_before_a_stop_are_kept(tmp_path: Path) -> None:
    async with serving(tmp_path) as broker:
        client = await Client.to(broker)
        await client.send()
        await client.pull()
        client.tell(
            15, {"consumerGroup": "billing", "topic": TOPIC, "queueId": 0, "commitOffset": 1}
        )
        await client.offset_of()
    async with serving(tmp_path) as broker:
        client = await Client.to(broker)
        assert await client.offset_of() == 1


@bounded
async def test_a_request_that_nobody_knows_is_told_so(tmp_path: Path) -> None:
    async with serving(tmp_path) as broker:
        client = await Client.to(broker)
        answer = await client.ask(9999)
        assert answer.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED
        assert answer.remark == " request type 9999 not supported"


@bounded
async def test_everything_that_runs_by_the_clock_goes_on_after_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with serving(tmp_path, flushConsumerOffsetInterval=10) as broker:
        client, offsets = await Client.to(broker), context_of(broker).offsets
        await client.send()
        await client.pull()
        saves = []

        def failing() -> None:
            saves.append(1)
            raise OSError("no space, for a while")

        monkeypatch.setattr(offsets, "save", failing)
        async with asyncio.timeout(10):
            while len(saves) < 3:
                await asyncio.sleep(0.01)
        monkeypatch.undo()


# -- kills ---------------------------------------------------------------------------------------


@contextlib.asynccontextmanager
async def process(conf: Path) -> AsyncIterator[tuple[asyncio.subprocess.Process, str]]:
    """A broker of its own process, and its address."""
    child = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "cometmq.cli.main", "broker", "-c", str(conf),
        stdout=asyncio.subprocess.PIPE,
    )  # fmt: skip
    try:
        assert child.stdout is not None
        line = await asyncio.wait_for(child.stdout.readline(), START_S)
        assert line.startswith(b"ready broker=")
        yield child, line.decode().strip().rpartition("@")[2]
    finally:
        if child.returncode is None:
            child.kill()
        await child.wait()


def written(root: Path, settings: dict[str, object]) -> Path:
    conf = root / "broker.conf"
    values = settings_of(root / "store", **settings)
    conf.write_text("".join(f"{key}={value}\n" for key, value in values.items()))
    return conf


async def producing(client: Client, name: int, acknowledged: set[bytes]) -> None:
    """Send until the connection breaks; note what was acknowledged."""
    with contextlib.suppress(OSError):
        for n in range(100_000):
            body = b"%d of %d" % (n, name)
            answer = await client.send(f"topic-{n % 5}", body, queue_id=-1)
            assert answer.code == 0
            acknowledged.add(body)


async def found_at(address: str, topics: Iterable[str]) -> list[bytes]:
    client = await Client.to(address)
    return [
        message.body
        for topic in topics
        for queue_id in range(4)
        for message in await client.pulled(topic, queue_id)
    ]


@pytest.mark.parametrize("flush", ["ASYNC_FLUSH", "SYNC_FLUSH"])
@bounded
async def test_nothing_that_was_acknowledged_is_lost_by_a_kill(tmp_path: Path, flush: str) -> None:
    conf = written(tmp_path, {"flushDiskType": flush})
    acknowledged: set[bytes] = set()
    for life in range(2):
        async with process(conf) as (child, address):
            clients = [await Client.to(address) for _ in range(3)]
            producers = [
                asyncio.create_task(producing(client, life * 10 + number, acknowledged))
                for number, client in enumerate(clients)
            ]
            wanted = len(acknowledged) + 300
            async with asyncio.timeout(30):
                while len(acknowledged) < wanted:
                    await asyncio.sleep(0.005)
            child.send_signal(signal.SIGKILL)
            await asyncio.gather(*producers)
    async with process(conf) as (child, address):
        found = await found_at(address, [f"topic-{n}" for n in range(5)])
        child.terminate()
        assert await asyncio.wait_for(child.wait(), 30) == 0

    assert acknowledged <= set(found)
    assert len(found) == len(set(found)), "and nothing is there twice"
