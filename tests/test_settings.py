"""Settings: what files say is what a server gets, or an error that names what is wrong."""

import dataclasses
import enum
from pathlib import Path
from typing import Any

import pytest

from cometmq.settings import (
    BadSetting,
    as_text,
    build,
    changed,
    declared,
    parse_properties,
    read_file,
    refuse_unknown,
    setting,
)


class Role(enum.Enum):
    MASTER = "ASYNC_MASTER"
    SLAVE = "SLAVE"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Sample:
    root: Path = setting("storePathRootDir", dataclasses.MISSING, "where files are")
    port: int = setting("listenPort", 10911, "where clients connect", live=True)
    auto_create: bool = setting("autoCreateTopicEnable", True, "make topics on demand", live=True)
    role: Role = setting("brokerRole", Role.MASTER, "who copies from whom")
    name: str = setting("brokerName", "broker-a", "its name in routes")
    ratio: float = setting("ratio", 0.5, "a part of the whole")
    namesrv: str | None = setting("namesrvAddr", None, "where to register")
    unsettable: int = 7

    def __post_init__(self) -> None:
        if self.port > 65535:
            raise ValueError("listenPort: a port has 16 bits")


ROOT = {"storePathRootDir": "/store"}


def sample(**values: Any) -> Sample:
    return build(Sample, {**ROOT, **values})


def test_without_values_the_defaults_hold() -> None:
    assert build(Sample, {}, root=Path("/store")) == Sample(root=Path("/store"))


def test_text_becomes_what_each_field_wants() -> None:
    built = sample(
        listenPort="1234",
        autoCreateTopicEnable="FALSE",
        brokerRole="SLAVE",
        ratio="0.25",
        namesrvAddr="127.0.0.1:9876",
    )

    assert built == Sample(
        root=Path("/store"),
        port=1234,
        auto_create=False,
        role=Role.SLAVE,
        ratio=0.25,
        namesrv="127.0.0.1:9876",
    )


def test_typed_values_of_toml_are_taken_too() -> None:
    built = sample(listenPort=1234, autoCreateTopicEnable=False, brokerName=5)

    assert (built.port, built.auto_create, built.name) == (1234, False, "5")


def test_an_empty_text_where_none_is_possible_is_none() -> None:
    assert sample(namesrvAddr="").namesrv is None
    assert sample(brokerName="").name == ""


def test_keys_of_others_are_left_alone() -> None:
    assert sample(mappedFileSizeCommitLog="1") == sample()


@pytest.mark.parametrize(
    ("key", "value", "reason"),
    [
        ("listenPort", "many", "listenPort=many: a whole number is expected"),
        ("listenPort", 1.5, "listenPort=1.5: a whole number is expected"),
        ("listenPort", True, "listenPort=True: a whole number is expected"),
        ("listenPort", "", "listenPort=: a whole number is expected"),
        ("listenPort", "9" * 5000, "a whole number is expected"),
        ("listenPort", "70000", "listenPort: a port has 16 bits"),
        ("autoCreateTopicEnable", "yes", "autoCreateTopicEnable=yes: true or false is expected"),
        ("brokerRole", "BOSS", "brokerRole=BOSS: one of ASYNC_MASTER, SLAVE is expected"),
        ("ratio", "half", "ratio=half: cannot be read as float"),
        ("brokerName", ["a", "b"], "brokerName: one value is expected, not a list"),
        ("namesrvAddr", {"a": 1}, "namesrvAddr: one value is expected, not a table"),
    ],
)
def test_a_value_that_cannot_be_taken_is_named(key: str, value: object, reason: str) -> None:
    with pytest.raises(BadSetting, match=reason):
        sample(**{key: value})


def test_what_must_be_given_and_is_not_is_named_by_its_key() -> None:
    with pytest.raises(BadSetting, match="storePathRootDir is missing"):
        build(Sample, {})


def test_only_fields_with_a_key_are_declared() -> None:
    known = declared(Sample)

    assert known["listenPort"][0] == "port"
    assert known["listenPort"][1].meaning == "where clients connect"
    assert len(known) == len(dataclasses.fields(Sample)) - 1


# -- changing them while the server runs ---------------------------------------------------------


def test_live_settings_can_be_changed() -> None:
    before = sample()

    after = changed(before, {"listenPort": "1", "autoCreateTopicEnable": "false"})

    assert after == dataclasses.replace(before, port=1, auto_create=False)


@pytest.mark.parametrize(
    ("key", "value", "reason"),
    [
        ("brokerName", "b", "brokerName cannot be changed while the server runs"),
        ("listenPort", "x", "a whole number is expected"),
        ("listenPort", "99999", "a port has 16 bits"),
        ("brokerNam", "b", "unknown setting 'brokerNam'"),
    ],
)
def test_a_change_that_cannot_be_made_is_refused(key: str, value: str, reason: str) -> None:
    with pytest.raises(BadSetting, match=reason):
        changed(sample(), {key: value})


def test_settings_as_text_build_the_same_settings_again() -> None:
    built = sample(brokerRole="SLAVE", ratio=0.125, autoCreateTopicEnable=False)

    text = as_text(built)

    assert (text["brokerRole"], text["autoCreateTopicEnable"]) == ("SLAVE", "false")
    assert text["namesrvAddr"] == ""
    assert build(Sample, text) == built


# -- files ---------------------------------------------------------------------------------------


def test_rocketmqs_own_files_are_read() -> None:
    content = """
# a comment
! another
brokerClusterName = DefaultCluster
brokerName=broker-a
  namesrvAddr = 127.0.0.1:9876;127.0.0.1:9877
messageDelayLevel = 1s 5s 10s
brokerIP1:127.0.0.1
aclEnable true
empty =
alone
"""
    assert parse_properties(content) == {
        "brokerClusterName": "DefaultCluster",
        "brokerName": "broker-a",
        "namesrvAddr": "127.0.0.1:9876;127.0.0.1:9877",
        "messageDelayLevel": "1s 5s 10s",
        "brokerIP1": "127.0.0.1",
        "aclEnable": "true",
        "empty": "",
        "alone": "",
    }


def test_the_last_of_two_equal_keys_wins() -> None:
    assert parse_properties("a=1\r\na=2\r\n") == {"a": "2"}


def test_a_file_is_toml_by_its_name(tmp_path: Path) -> None:
    toml, conf = tmp_path / "broker.toml", tmp_path / "broker.conf"
    toml.write_text('listenPort = 1\nbrokerName = "b=c"\nautoCreateTopicEnable = true\n')
    conf.write_text('listenPort = 1\nbrokerName = "b"\n')

    assert read_file(toml) == {
        "listenPort": 1,
        "brokerName": "b=c",
        "autoCreateTopicEnable": True,
    }
    assert read_file(conf) == {"listenPort": "1", "brokerName": '"b"'}


@pytest.mark.parametrize(
    ("name", "content", "reason"),
    [
        ("broken.toml", b"listenPort = ", "broken.toml is not TOML"),
        ("latin.conf", b"brokerName = caf\xe9\n", r"latin.conf is not UTF-8: .* at byte 16"),
    ],
)
def test_a_file_that_cannot_be_read_is_named(
    tmp_path: Path, name: str, content: bytes, reason: str
) -> None:
    path = tmp_path / name
    path.write_bytes(content)

    with pytest.raises(BadSetting, match=reason):
        read_file(path)


def test_a_file_that_is_missing_is_named(tmp_path: Path) -> None:
    with pytest.raises(BadSetting, match=r"cannot read .*absent.conf: No such file"):
        read_file(tmp_path / "absent.conf")


def test_an_unknown_key_is_an_error_that_names_the_nearest_known_one() -> None:
    with pytest.raises(BadSetting, match=r"unknown setting 'listenPrt'; did you mean listenPort\?"):
        refuse_unknown({"listenPrt": "1"}, declared(Sample))
    with pytest.raises(BadSetting, match=r"unknown setting 'zzz'$"):
        refuse_unknown({"zzz": "1"}, declared(Sample))


def test_keys_that_have_no_effect_here_are_told_apart_from_unknown_ones() -> None:
    values = {"listenPort": "1", "useEpollNativeSelector": "true"}

    assert refuse_unknown(values, declared(Sample), {"useEpollNativeSelector"}) == [
        "useEpollNativeSelector"
    ]
