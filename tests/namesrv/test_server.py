"""A NameServer as a whole: connections that break, brokers that fall silent, TLS, start and end."""

import asyncio
from pathlib import Path

import pytest
import trustme

from cometmq.namesrv.config import NamesrvConfig
from cometmq.namesrv.kv_config import KvConfigDamaged
from cometmq.namesrv.server import NameServer
from cometmq.protocol.codes import RequestCode
from cometmq.protocol.command import Request
from cometmq.settings import BadSetting
from cometmq.transport.dial import connect
from cometmq.transport.errors import ConnectionClosed
from cometmq.transport.tls import TlsMode, client_context
from tests.transport.peers import Peer, until

from .brokers import broker, topics
from .captured import REGISTER_FRAME
from .clients import TIMEOUT_S, running


async def test_a_broker_is_gone_as_soon_as_its_connection_is() -> None:
    async with running() as namesrv:
        theirs = await namesrv.connect()
        await namesrv.register(connection=theirs)
        assert await namesrv.brokers() == ["a"]
        theirs.abort()
        await until(lambda: not namesrv.server.state.routes.broker_addr_table)
        assert await namesrv.brokers() == []


async def test_a_broker_that_came_back_outlives_its_old_connection() -> None:
    async with running() as namesrv:
        old, new = await namesrv.connect(), await namesrv.connect()
        await namesrv.register(connection=old)
        await namesrv.register(connection=new)
        old.abort()
        await namesrv.register(broker("b", "10.0.0.9:1"))
        await until(lambda: len(namesrv.server._server.connections) == 2)
        assert await namesrv.brokers() == ["a", "b"]


async def test_a_silent_broker_is_forgotten_and_its_connection_closed() -> None:
    async with running(NamesrvConfig(scan_interval_ms=10)) as namesrv:
        theirs = await namesrv.connect()
        await namesrv.register(broker(timeout_ms=1000), connection=theirs)
        namesrv.clock.advance(1001)
        await until(lambda: not theirs.is_open)
        assert await namesrv.brokers() == []


async def test_a_new_scan_interval_counts_from_the_next_scan_on() -> None:
    async with running(NamesrvConfig(scan_interval_ms=10)) as namesrv:
        await namesrv.ask(RequestCode.UPDATE_NAMESRV_CONFIG, b"scanNotActiveBrokerInterval=20")
        await namesrv.register(broker(timeout_ms=1))
        namesrv.clock.advance(2)
        await until(lambda: not namesrv.server.state.routes.broker_live_table)


async def test_garbage_closes_one_connection_and_hurts_nobody_else() -> None:
    async with running() as namesrv:
        await namesrv.register()
        with await Peer.to(namesrv.server.address) as vandal:
            await vandal.send(b"GET / HTTP/1.1\r\n\r\n")
            assert await vandal.rest() == []
        assert await namesrv.brokers() == ["a"]


async def test_many_brokers_and_clients_at_a_time_see_one_table() -> None:
    async with running() as namesrv:
        connections = [await namesrv.connect() for _ in range(20)]
        await asyncio.gather(
            *(
                namesrv.register(
                    broker(f"b{n}", f"h:{n}"), topics("orders", f"own-{n}"), connection=c
                )
                for n, c in enumerate(connections)
            )
        )
        route = await namesrv.route("orders")
        assert sorted(q.broker_name for q in route.queue_datas) == sorted(
            f"b{n}" for n in range(20)
        )
        for connection in connections[5:]:
            connection.abort()
        await until(lambda: len(namesrv.server.state.routes.broker_addr_table) == 5)
        assert len((await namesrv.route("orders")).broker_datas) == 5


async def test_it_serves_again_on_the_port_it_had() -> None:
    async with running() as namesrv:
        port = namesrv.server.address.port
        with await Peer.to(namesrv.server.address) as real:
            await real.send(REGISTER_FRAME)
            assert (await real.answer()).code == 0
    again = NameServer(NamesrvConfig(port=port))
    await again.start()
    assert again.address.port == port
    await again.stop()


async def test_a_port_that_is_taken_is_an_error_of_the_start() -> None:
    async with running() as namesrv:
        second = NameServer(NamesrvConfig(port=namesrv.server.address.port))
        with pytest.raises(OSError, match="in use"):
            await second.start()
        await second.stop()


async def test_a_damaged_key_value_file_is_an_error_of_the_start(tmp_path: Path) -> None:
    path = tmp_path / "kvConfig.json"
    path.write_text("{")
    server = NameServer(NamesrvConfig(port=0, kv_config_path=path))
    with pytest.raises(KvConfigDamaged, match="kvConfig"):
        await server.start()


# -- TLS -------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with server.pem, server.key and authority.pem."""
    home = tmp_path_factory.mktemp("tls")
    authority = trustme.CA()
    issued = authority.issue_cert("127.0.0.1")
    issued.private_key_pem.write_to_path(home / "server.key")
    issued.cert_chain_pems[0].write_to_path(home / "server.pem")
    authority.cert_pem.write_to_path(home / "authority.pem")
    return home


def tls_config(home: Path, mode: TlsMode) -> NamesrvConfig:
    return NamesrvConfig(
        port=0, tls_mode=mode, tls_certificate=home / "server.pem", tls_key=home / "server.key"
    )


@pytest.mark.parametrize("mode", [TlsMode.PERMISSIVE, TlsMode.ENFORCING])
async def test_clients_with_tls_are_served(certificate: Path, mode: TlsMode) -> None:
    server = NameServer(tls_config(certificate, mode))
    await server.start()
    trusting = client_context(certificate / "authority.pem")
    connection = await connect(str(server.address), tls=trusting)
    answer = await connection.request(Request(RequestCode.GET_BROKER_CLUSTER_INFO), TIMEOUT_S)
    assert answer.code == 0
    connection.close()
    await server.stop()


async def test_clients_without_tls_are_turned_away_where_it_is_enforced(certificate: Path) -> None:
    async with running(tls_config(certificate, TlsMode.ENFORCING)) as namesrv:
        with pytest.raises(ConnectionClosed):
            await namesrv.ask(RequestCode.GET_BROKER_CLUSTER_INFO)


async def test_clients_without_tls_are_served_where_it_is_not(certificate: Path) -> None:
    async with running(tls_config(certificate, TlsMode.PERMISSIVE)) as namesrv:
        assert await namesrv.brokers() == []


def test_a_certificate_that_cannot_be_used_is_a_bad_setting(tmp_path: Path) -> None:
    (tmp_path / "server.pem").write_text("nothing")
    (tmp_path / "server.key").write_text("nothing")
    with pytest.raises(BadSetting, match=r"tls\.server\.certPath"):
        NameServer(tls_config(tmp_path, TlsMode.PERMISSIVE))
