"""Settings of a NameServer as files give them."""

from pathlib import Path

import pytest

from cometmq.namesrv.config import ROCKETMQ_KEYS, NamesrvConfig, load
from cometmq.settings import BadSetting, declared
from cometmq.transport.tls import TlsMode


def test_a_file_of_rocketmq_is_understood_and_what_has_no_effect_is_told() -> None:
    config, without_effect = load(
        {"listenPort": "9999", "orderMessageEnable": "true", "serverWorkerThreads": "8"}
    )
    assert (config.port, config.order_message_enable) == (9999, True)
    assert without_effect == ["serverWorkerThreads"]


def test_an_unknown_key_is_refused_with_the_nearest_known_one() -> None:
    with pytest.raises(BadSetting, match="listenPort"):
        load({"listenPrt": "1"})


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("listenPort", "70000"),
        ("listenPort", "nine"),
        ("orderMessageEnable", "maybe"),
        ("scanNotActiveBrokerInterval", "0"),
        ("serverChannelMaxIdleTimeSeconds", "0"),
        ("tls.server.mode", "sometimes"),
        ("tls.server.mode", "enforcing"),
        ("tls.server.certPath", "/cert.pem"),
        ("tls.server.need.client.auth", "require"),
        ("enableControllerInNamesrv", "true"),
    ],
)
def test_a_value_that_cannot_be_is_refused_under_its_key(key: str, value: str) -> None:
    with pytest.raises(BadSetting, match=key.removesuffix(".certPath")):
        load({key: value})


def test_the_key_value_file_is_where_it_was_put() -> None:
    assert NamesrvConfig().kv_config_file is None
    assert NamesrvConfig(home=Path("/h")).kv_config_file == Path("/h/kvConfig.json")
    both = NamesrvConfig(home=Path("/h"), kv_config_path=Path("/kv.json"))
    assert both.kv_config_file == Path("/kv.json")


def test_no_key_is_both_known_and_of_no_effect() -> None:
    assert not declared(NamesrvConfig).keys() & ROCKETMQ_KEYS


def test_it_listens_on_loopback_and_takes_tls_only_with_a_certificate() -> None:
    config = NamesrvConfig()
    assert (config.bind_address, config.port) == ("127.0.0.1", 9876)
    assert config.tls_mode is TlsMode.PERMISSIVE
