"""The real Java client over TLS, on ports that take nothing else."""

from __future__ import annotations

from pathlib import Path

import pytest
import trustme

from interop import comet
from interop.rocketmq import HOST, ConfigValue, free_port, peer

COUNT = 50


class EncryptedNameServer(comet.NameServer):
    """A name server with a certificate, of whom the harness itself asks nothing."""

    def __init__(self, home: Path, settings: dict[str, ConfigValue]) -> None:
        super().__init__(home, port=free_port())
        self._settings = settings

    def start(self) -> None:
        config: dict[str, ConfigValue] = {"listenPort": self.port, "bindAddress": HOST}
        self._server.start({**config, **self._settings}, lambda: True)


class EncryptedBroker(comet.Broker):
    """A broker that says itself when it is registered."""

    def _is_registered(self) -> bool:
        return True


@pytest.fixture
def certificate(tmp_path: Path) -> dict[str, ConfigValue]:
    issued = trustme.CA().issue_cert(HOST, "localhost")
    chain, key = tmp_path / "chain.pem", tmp_path / "key.pem"
    chain.write_bytes(b"".join(pem.bytes() for pem in issued.cert_chain_pems))
    key.write_bytes(issued.private_key_pem.bytes())
    return {"tls.server.certPath": str(chain), "tls.server.keyPath": str(key)}


def acknowledged(namesrv: str, topic: str, count: int) -> int:
    *_, done = peer("produce", namesrv=namesrv, topic=topic, count=count, seed=1)
    found: int = done["acked"]
    return found


def test_a_java_client_speaks_tls_where_plain_is_refused(
    tmp_path: Path,
    certificate: dict[str, ConfigValue],
    rocketmq_classpath: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert rocketmq_classpath
    enforcing = {**certificate, "tls.server.mode": "enforcing"}
    namesrv = EncryptedNameServer(tmp_path / "namesrv", enforcing)
    broker = EncryptedBroker(
        tmp_path / "broker", tmp_path / "store", namesrv.address,
        config={**enforcing, "useTLS": True},
    )  # fmt: skip
    with namesrv, broker:
        assert acknowledged(namesrv.address, "Plain", 1) == 0
        monkeypatch.setenv("JAVA_TOOL_OPTIONS", "-Dtls.enable=true")
        assert acknowledged(namesrv.address, "Encrypted", COUNT) == COUNT
        *messages, _ = peer("dump", namesrv=namesrv.address, topic=["Encrypted"])
        # Some of the samples are delayed and arrive a little later.
        assert len(messages) > COUNT // 2
