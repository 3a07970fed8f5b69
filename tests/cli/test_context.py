"""`cometmq context`, and which cluster a command talks to."""

import stat
from pathlib import Path

import pytest
import trustme

from .program import Program, next_line, running

NOWHERE = "127.0.0.1:1"


def test_a_context_is_added_used_and_removed(cometmq: Program) -> None:
    namesrv = cometmq.namesrv
    elsewhere = {"NAMESRV_ADDR": NOWHERE}
    assert cometmq("context", "add", "shop", "-n", namesrv).out == "context shop: added\n"
    cometmq("context", "add", "away", "-n", f"{NOWHERE};127.0.0.1:2")
    text, listed = cometmq.both("context", "list")
    assert listed == [
        {"name": "away", "current": False, "namesrv": f"{NOWHERE};127.0.0.1:2", "tls": False,
         "tls_ca": "", "access_key": ""},
        {"name": "shop", "current": False, "namesrv": namesrv, "tls": False, "tls_ca": "",
         "access_key": ""},
    ]  # fmt: skip
    assert ["shop", "no", namesrv, "no", "-", "-"] in text.rows

    cometmq.fails("cluster", "list", code=4, env=elsewhere)
    assert cometmq("cluster", "list", "--context", "shop", env=elsewhere).out
    assert cometmq("cluster", "list", env={**elsewhere, "COMETMQ_CONTEXT": "shop"}).out
    assert cometmq("context", "use", "shop", "-o", "json").value["result"] == "in use"
    assert cometmq("cluster", "list", env=elsewhere).out, "a context goes before the environment"
    assert "127.0.0.1:1:" in cometmq.fails("cluster", "list", "-n", NOWHERE, code=4)
    assert cometmq("context", "use", "-").out == "no context is in use\n"
    cometmq.fails("cluster", "list", code=4, env=elsewhere)
    assert cometmq("context", "remove", "shop").out == "context shop: removed\n"
    told = cometmq.fails("cluster", "list", "--context", "shop", code=3)
    assert told == ("there is no context 'shop'; known: away; `cometmq context add` makes one")


def test_secrets_are_kept_from_others(lonely: Program) -> None:
    secret = {"COMETMQ_SECRET_KEY": "hush"}
    lonely("context", "add", "shop", "-n", NOWHERE, "--access-key", "me", "--use", env=secret)
    file = lonely.home / "config/cometmq/contexts.json"
    assert '"secret_key": "hush"' in file.read_text()
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    for output in ("table", "json"):
        shown = lonely("context", "list", "-o", output).out
        assert "me" in shown
        assert "hush" not in shown
    lonely("context", "add", "piped", "-n", NOWHERE, "--access-key", "me", stdin="psst\n")
    assert '"secret_key": "psst"' in file.read_text()
    assert "needs a secret" in lonely.fails(
        "context", "add", "x", "-n", NOWHERE, "--access-key", "me", code=2
    )
    assert "the access key you has no secret" in lonely.fails(
        "cluster", "list", "-n", NOWHERE, "--access-key", "you", code=2
    )


def test_a_file_that_cannot_be_read_is_named(lonely: Program) -> None:
    file = lonely.home / "config/cometmq/contexts.json"
    file.parent.mkdir(parents=True)
    file.write_text("{nonsense")
    told = lonely.fails("context", "list", code=2)
    assert told.startswith(f"{file} cannot be read: ")
    assert told.endswith("; mend or remove it")


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("add", "x", "-n", "nonsense"), "'nonsense' is not an address: host:port is"),
        (("add", "x", "-n", NOWHERE, "--tls-ca", "/no/such"), "/no/such: there is no such file"),
    ],
)
def test_what_no_context_can_be_is_told(
    lonely: Program, arguments: tuple[str, ...], told: str
) -> None:
    assert told in lonely.fails("context", *arguments, code=2)


def test_a_cluster_is_reached_with_tls(lonely: Program, tmp_path: Path) -> None:
    authority = trustme.CA()
    own = authority.issue_cert("127.0.0.1")
    own.private_key_pem.write_to_path(str(tmp_path / "key.pem"))
    (tmp_path / "chain.pem").write_bytes(b"".join(one.bytes() for one in own.cert_chain_pems))
    for name, ca in (("ours", authority), ("others", trustme.CA())):
        ca.cert_pem.write_to_path(str(tmp_path / f"{name}.pem"))
    conf = tmp_path / "namesrv.conf"
    conf.write_text(
        f"tls.server.mode=enforcing\ntls.server.certPath={tmp_path}/chain.pem\n"
        f"tls.server.keyPath={tmp_path}/key.pem\n"
    )
    with running(lonely.start("namesrv", "-c", conf, "--port", 0)) as server:
        namesrv = next_line(server).removeprefix("ready namesrv=").strip()
        lonely("context", "add", "safe", "-n", namesrv, "--tls-ca", tmp_path / "ours.pem")
        assert lonely("cluster", "list", "--context", "safe", "-o", "json").value == []
        assert lonely("cluster", "list", "-n", namesrv, "--tls", "-o", "json").value == []
        for wrong in ((), ("--tls-ca", tmp_path / "others.pem")):
            lonely.fails("cluster", "list", "-n", namesrv, *wrong, code=4)
    told = lonely.fails("cluster", "list", "-n", NOWHERE, "--tls-ca", conf, code=2)
    assert told.endswith("; a PEM file is expected")
