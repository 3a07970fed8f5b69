"""TLS and plain clients on one port, told apart by their first byte."""

import asyncio
import dataclasses
import logging
import ssl
from pathlib import Path

import pytest
import trustme

from cometmq.protocol.command import Command, FrameParser, Request, Response
from cometmq.protocol.host import Host
from cometmq.transport.connection import Connection
from cometmq.transport.dial import connect
from cometmq.transport.errors import ConnectionClosed
from cometmq.transport.tls import client_context, server_context

from .peers import ECHO, Peer, echo, framed, serving, until

TIMEOUT_S = 30.0
MIB = 1024**2


@dataclasses.dataclass(frozen=True)
class Certificates:
    server: ssl.SSLContext
    authority: Path
    stranger: Path


@pytest.fixture(scope="session")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    home = tmp_path_factory.mktemp("tls")
    authority, stranger = trustme.CA(), trustme.CA()
    issued = authority.issue_cert("127.0.0.1")
    issued.private_key_pem.write_to_path(home / "server.key")
    for number, blob in enumerate(issued.cert_chain_pems):
        blob.write_to_path(home / "server.pem", append=number > 0)
    authority.cert_pem.write_to_path(home / "authority.pem")
    stranger.cert_pem.write_to_path(home / "stranger.pem")
    return Certificates(
        server_context(home / "server.pem", home / "server.key"),
        home / "authority.pem",
        home / "stranger.pem",
    )


async def asked_over_tls(address: Host, requests: bytes, count: int) -> list[Command]:
    """What the event loop's own TLS gets out of our server."""
    reader, writer = await asyncio.open_connection(*address, ssl=client_context())
    writer.write(requests)
    parser, answers = FrameParser(), list[Command]()
    while len(answers) < count:
        data = await reader.read(MIB)
        assert data, "the connection was closed before all answers came"
        answers += parser.feed(data)
    writer.close()
    await writer.wait_closed()
    return answers


async def test_plain_and_encrypted_clients_share_a_port(certificates: Certificates) -> None:
    async with serving(tls=certificates.server) as (_, address):
        plain = await connect(str(address))
        encrypted = await connect(str(address), tls=client_context())
        trusting = await connect(str(address), tls=client_context(certificates.authority))
        for connection in (plain, encrypted, trusting):
            answer = await connection.request(Request(ECHO, {}, b"hello"), TIMEOUT_S)
            assert answer.body == b"hello"
            connection.close()


async def test_the_event_loops_own_tls_understands_ours(certificates: Certificates) -> None:
    requests = b"".join(framed(ECHO, number, b"x" * 1000) for number in range(500))
    async with serving(tls=certificates.server) as (_, address):
        answers = await asked_over_tls(address, requests, 500)

    assert [answer.opaque for answer in answers] == list(range(500))


async def test_our_client_understands_the_event_loops_own_tls(certificates: Certificates) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readexactly(4)
        await reader.readexactly(int.from_bytes(head, "big"))
        writer.write(framed(ECHO, 1, b"hello").replace(b'"flag":0', b'"flag":1'))
        await reader.read()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=certificates.server)
    port = server.sockets[0].getsockname()[1]
    connection = await connect(f"127.0.0.1:{port}", tls=client_context(certificates.authority))
    answer = await connection.request(Request(ECHO), TIMEOUT_S)
    connection.close()
    server.close()
    await server.wait_closed()

    assert answer.body == b"hello"


async def test_large_bodies_go_through_tls_in_both_directions(certificates: Certificates) -> None:
    body = bytes(range(256)) * (10 * MIB // 256)
    async with serving(tls=certificates.server) as (_, address):
        connection = await connect(str(address), tls=client_context())
        answers = await asyncio.gather(
            *(connection.request(Request(ECHO, {}, body), TIMEOUT_S) for _ in range(3))
        )
        connection.close()

    assert all(answer.body == body for answer in answers)


async def test_the_server_asks_back_over_tls(certificates: Certificates) -> None:
    async def ask_back(connection: Connection, command: Command) -> Response:
        back = await connection.request(Request(ECHO, {}, command.body), TIMEOUT_S)
        return Response(body=back.body * 2)

    async with serving({12: ask_back}, tls=certificates.server) as (_, address):
        connection = await connect(str(address), {ECHO: echo}, tls=client_context())
        answer = await connection.request(Request(12, {}, b"ab"), TIMEOUT_S)
        connection.close()

    assert answer.body == b"abab"


@pytest.mark.parametrize("cut", [1, 3, 5, 100])
async def test_a_handshake_in_pieces_is_still_one(cut: int, certificates: Certificates) -> None:
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = client_context().wrap_bio(incoming, outgoing)
    async with serving(tls=certificates.server) as (_, address):
        with await Peer.to(address) as peer:
            while True:
                try:
                    client.do_handshake()
                    break
                except ssl.SSLWantReadError:
                    await _send_in_pieces(peer, outgoing.read(), cut)
                    incoming.write(await peer._receive())
            client.write(framed(ECHO, 1, b"hello"))
            await _send_in_pieces(peer, outgoing.read(), cut)
            answer = await _decrypted_answer(peer, client, incoming)

    assert answer.body == b"hello"


async def _send_in_pieces(peer: Peer, data: bytes, size: int) -> None:
    for start in range(0, len(data), size):
        await peer.send(data[start : start + size])
        await asyncio.sleep(0)


async def _decrypted_answer(peer: Peer, client: ssl.SSLObject, incoming: ssl.MemoryBIO) -> Command:
    parser, answers = FrameParser(), list[Command]()
    while not answers:
        incoming.write(await peer._receive())
        try:
            answers = parser.feed(client.read(MIB))
        except ssl.SSLWantReadError:
            continue
    return answers[0]


# -- who is refused ------------------------------------------------------------------------------


async def test_where_tls_is_required_a_plain_client_is_refused(
    certificates: Certificates, caplog: pytest.LogCaptureFixture
) -> None:
    async with serving(tls=certificates.server, tls_required=True) as (_, address):
        with await Peer.to(address) as plain:
            await plain.send(framed(ECHO, 1))
            assert await plain.raw() == b""
        encrypted = await connect(str(address), tls=client_context())
        answer = await encrypted.request(Request(ECHO, {}, b"hello"), TIMEOUT_S)
        encrypted.close()

    assert answer.body == b"hello"
    assert "a connection without TLS, which is required here" in caplog.text


async def test_without_a_certificate_a_handshake_is_refused(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with serving() as (_, address):
        connection = await connect(str(address), tls=client_context())
        with pytest.raises(ConnectionClosed):
            await connection.request(Request(ECHO), TIMEOUT_S)

    assert "no certificate is configured here" in caplog.text


@pytest.mark.parametrize("garbage", [b"\x16" + b"\xff" * 64, b"\x16\x03\x01\x00\x05hello"])
async def test_garbage_after_the_first_byte_closes_the_connection(
    garbage: bytes, certificates: Certificates
) -> None:
    async with serving(tls=certificates.server) as (server, address):
        with await Peer.to(address) as peer:
            await peer.send(garbage)
            alert = await peer.raw()
        await until(lambda: not server.connections)

    assert alert[:1] in (b"", b"\x15")


async def test_garbage_inside_tls_closes_the_connection_after_earlier_answers(
    certificates: Certificates,
) -> None:
    async with serving(tls=certificates.server) as (server, address):
        reader, writer = await asyncio.open_connection(*address, ssl=client_context())
        writer.write(framed(ECHO, 1) + bytes(64))
        answers = FrameParser().feed(await reader.read())
        writer.close()
        await writer.wait_closed()
        await until(lambda: not server.connections)

    assert [answer.opaque for answer in answers] == [1]


async def test_an_encrypted_connection_that_turns_to_garbage_is_closed(
    certificates: Certificates,
) -> None:
    async with serving(tls=certificates.server) as (server, address):
        connection = await connect(str(address), tls=client_context())
        await connection.request(Request(ECHO), TIMEOUT_S)
        assert connection._transport is not None
        connection._transport.write(b"\x17\x03\x03\x00\x20" + bytes(32))
        await until(lambda: not server.connections)
        await until(lambda: not connection.is_open)


async def test_a_client_does_not_talk_to_a_server_that_it_does_not_trust(
    certificates: Certificates, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    async with serving(tls=certificates.server) as (_, address):
        connection = await connect(str(address), tls=client_context(certificates.stranger))
        for _ in range(2):  # While it fails, and when it has failed.
            with pytest.raises(ConnectionClosed, match="TLS failed: CERTIFICATE_VERIFY_FAILED"):
                await connection.request(Request(ECHO, {}, b"secret"), TIMEOUT_S)

    assert "TLS failed: CERTIFICATE_VERIFY_FAILED" in caplog.text


# -- limits hold here too ------------------------------------------------------------------------


async def test_an_unfinished_handshake_is_closed_when_idle(certificates: Certificates) -> None:
    async with serving(tls=certificates.server, idle_s=0.2) as (server, address):
        with await Peer.to(address) as peer:
            await peer.send(b"\x16\x03\x01\x02\x00\x01")
            assert await asyncio.wait_for(peer.raw(), TIMEOUT_S) == b""
        assert server.connections == set()


async def test_a_peer_that_does_not_read_is_not_listened_to_over_tls_either(
    certificates: Certificates,
) -> None:
    large = Response(body=bytes(100_000))
    handlers = {ECHO: lambda *_: large}
    async with serving(handlers, tls=certificates.server, output_bytes_high=65536) as (
        server,
        address,
    ):
        reader, writer = await asyncio.open_connection(*address, ssl=client_context(), limit=65536)
        writer.write(b"".join(framed(ECHO, number) for number in range(500)))
        await until(lambda: server.connections)
        (connection,) = server.connections
        await until(lambda: connection._paused)
        assert connection._unsent() < 65536 * 3 + 2 * 100_000

        parser, answers = FrameParser(), 0
        while answers < 500:
            answers += len(parser.feed(await reader.read(MIB)))
        writer.close()
        await writer.wait_closed()


async def test_what_a_client_says_before_the_handshake_ends_is_counted(
    certificates: Certificates,
) -> None:
    async with serving(tls=certificates.server) as (_, address):
        connection = await connect(str(address), tls=client_context())
        connection.tell(Request(ECHO, {}, bytes(1000)))
        connection._flush()
        assert connection._unsent() > 1000
        await connection.request(Request(ECHO), TIMEOUT_S)
        await until(lambda: connection._unsent() == 0)
        connection.close()
