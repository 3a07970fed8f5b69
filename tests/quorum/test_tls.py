"""Members that speak TLS to one another, and whom they do not believe."""

import asyncio
import ssl
from pathlib import Path
from typing import Any

import pytest
import trustme

from cometmq.settings import BadSetting
from cometmq.transport.tls import client_context
from tests.broker.brokers import until
from tests.quorum.groups import Group, group_of, read_all, send_all

LOOPS = ["asyncio", "uvloop"]


class Authority:
    """Signs certificates into a directory."""

    def __init__(self, home: Path) -> None:
        home.mkdir()
        self._home = home
        self._signs = trustme.CA()
        self.certificate = home / "authority.pem"
        self._signs.cert_pem.write_to_path(self.certificate)

    def settings(self, member: str) -> dict[str, Any]:
        """Those of a member with a certificate of its own."""
        issued = self._signs.issue_cert(member)
        key, chain = self._home / f"{member}.key", self._home / f"{member}.pem"
        issued.private_key_pem.write_to_path(key)
        for number, blob in enumerate(issued.cert_chain_pems):
            blob.write_to_path(chain, append=number > 0)
        return {
            "raft.tls.trustCertPath": self.certificate,
            "tls.server.certPath": chain,
            "tls.server.keyPath": key,
        }


async def start(group: Group, authority: Authority, *members: str) -> None:
    for member in members:
        await group.start(member, **authority.settings(member))


async def test_members_with_certificates_of_one_authority_are_a_group(tmp_path: Path) -> None:
    authority = Authority(tmp_path / "authority")
    async with group_of(tmp_path) as group:
        await start(group, authority, "n0", "n1", "n2")
        first = await group.leader()
        sent = await send_all(group.up[first], 300)
        assert len(sent) == 300
        await group.kill(first)
        second = await group.leader()
        sent += await send_all(group.up[second], 100, first=300)
        await start(group, authority, first)
        await group.in_step()
        group.assert_same()
        assert await read_all(group.up[first]) == sent


async def test_who_has_another_certificate_or_none_is_not_let_in(tmp_path: Path) -> None:
    authority, stranger = Authority(tmp_path / "authority"), Authority(tmp_path / "stranger")
    async with group_of(tmp_path) as group:
        await start(group, authority, "n0", "n1")
        leader = await group.leader()
        assert len(await send_all(group.up[leader], 20)) == 20
        await start(group, stranger, "n2")
        host, port = "127.0.0.1", group.ports[leader].number
        for context in (None, client_context(authority.certificate)):
            await assert_turned_away(host, port, context)
        assert len(await send_all(group.up[leader], 20, first=20)) == 20
        assert await read_all(group.up["n2"]) == []
        assert group.quorum("n2").leader is None
        # With the right certificate it is welcome.
        await group.kill("n2")
        await start(group, authority, "n2")
        await until(lambda: group.quorum("n2").leader is not None)
        await group.in_step()
        group.assert_same()


async def assert_turned_away(host: str, port: int, context: ssl.SSLContext | None) -> None:
    reader, writer = await asyncio.open_connection(host, port, ssl=context)
    writer.write(b"\x00" * 64)
    with pytest.raises((ssl.SSLError, ConnectionError, asyncio.IncompleteReadError)):
        await asyncio.wait_for(reader.readexactly(1 << 20), 10)
    writer.transport.abort()


async def test_a_group_that_takes_only_tls_speaks_nothing_else_itself(tmp_path: Path) -> None:
    authority = Authority(tmp_path / "authority")
    async with group_of(tmp_path, 1) as group:
        settings = {**authority.settings("n0"), "tls.server.mode": "enforcing"}
        group.make("n0", **settings)
        del settings["raft.tls.trustCertPath"]
        with pytest.raises(BadSetting, match="would speak to one another in plain text"):
            group.make("n0", **settings)
        with pytest.raises(BadSetting, match=r"raft\.tls\.trustCertPath needs tls\.server\.cert"):
            group.make("n0", **{"raft.tls.trustCertPath": authority.certificate})


async def test_a_certificate_that_cannot_be_used_is_told_at_the_start(tmp_path: Path) -> None:
    authority = Authority(tmp_path / "authority")
    async with group_of(tmp_path, 1) as group:
        settings = {**authority.settings("n0"), "raft.tls.trustCertPath": tmp_path / "missing.pem"}
        with pytest.raises(BadSetting, match=r"missing\.pem"):
            await group.make("n0", **settings).start()
