"""Where settings come from: the later source wins, and everybody can be told who said what."""

from pathlib import Path

import pytest

from cometmq.cli.roles import ROLES, Role
from cometmq.settings import BadSetting
from cometmq.sources import Given, gather, values, variable

KEYS = ("listenPort", "brokerName", "tls.server.certPath", "flushDiskType")


def written(path: Path, content: str) -> Path:
    path.write_text(content)
    return path


def test_toml_then_conf_then_environment_then_flags(tmp_path: Path) -> None:
    toml = written(
        tmp_path / "a.toml",
        'listenPort = 1\nbrokerName = "toml"\nflushDiskType = "SYNC_FLUSH"\nbrokerId = 0\n',
    )
    conf = written(tmp_path / "b.conf", "listenPort=2\nbrokerName=conf\nflushDiskType=ASYNC_FLUSH")
    environment = {"COMETMQ_BROKER__LISTEN_PORT": "3", "COMETMQ_BROKER__BROKER_NAME": "env"}
    flags = {"listenPort": Given(4, "flag --port")}
    found = gather("broker", KEYS, [conf, toml], environment, flags)
    assert found == {
        "brokerId": (0, f"file {toml}"),
        "flushDiskType": ("ASYNC_FLUSH", f"file {conf}"),
        "brokerName": ("env", "environment COMETMQ_BROKER__BROKER_NAME"),
        "listenPort": (4, "flag --port"),
    }
    assert values(found)["listenPort"] == 4


def test_of_two_files_of_a_kind_the_second_wins(tmp_path: Path) -> None:
    first = written(tmp_path / "first.conf", "listenPort=1")
    second = written(tmp_path / "second.conf", "listenPort=2")
    assert gather("broker", KEYS, [first, second], {}, {})["listenPort"].value == "2"
    assert gather("broker", KEYS, [second, first], {}, {})["listenPort"].value == "1"


def test_the_environment_of_another_role_says_nothing() -> None:
    environment = {"COMETMQ_NAMESRV__LISTEN_PORT": "1", "COMETMQ_PURE": "1", "PATH": "/bin"}
    assert gather("broker", KEYS, [], environment, {}) == {}


def test_what_kubernetes_makes_of_a_service_is_left_alone() -> None:
    environment = {"COMETMQ_BROKER_SERVICE_HOST": "10.0.0.1", "COMETMQ_BROKER_PORT": "tcp://x:1"}
    assert gather("broker", KEYS, [], environment, {}) == {}


def test_an_unknown_variable_is_an_error_that_names_the_nearest() -> None:
    with pytest.raises(BadSetting, match="did you mean COMETMQ_BROKER__LISTEN_PORT"):
        gather("broker", KEYS, [], {"COMETMQ_BROKER__LISTENPORT": "1"}, {})


@pytest.mark.parametrize(
    ("key", "name"),
    [
        ("listenPort", "COMETMQ_BROKER__LISTEN_PORT"),
        ("brokerIP1", "COMETMQ_BROKER__BROKER_IP1"),
        ("tls.server.certPath", "COMETMQ_BROKER__TLS_SERVER_CERT_PATH"),
        ("log.level", "COMETMQ_BROKER__LOG_LEVEL"),
    ],
)
def test_variables_are_keys_in_capitals(key: str, name: str) -> None:
    assert variable("broker", key) == name


@pytest.mark.parametrize("role", ROLES.values(), ids=ROLES)
def test_no_two_keys_share_a_variable(role: Role) -> None:
    keys = role.settings.keys() | role.without_effect
    assert len({variable(role.name, key) for key in keys}) == len(keys)
