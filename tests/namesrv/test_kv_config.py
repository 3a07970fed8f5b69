"""The key-value configuration and its file."""

import json
from pathlib import Path

import pytest

from cometmq.namesrv.kv_config import KvConfig, KvConfigDamaged
from cometmq.store.disk import Disk


def loaded(path: Path) -> KvConfig:
    kv = KvConfig(path)
    kv.load()
    return kv


def test_what_was_put_survives_a_restart(tmp_path: Path) -> None:
    path = tmp_path / "namesrv" / "kvConfig.json"
    kv = loaded(path)
    kv.put("ORDER_TOPIC_CONFIG", "orders", "broker-a:4")
    kv.put("ORDER_TOPIC_CONFIG", "bills", "broker-a:8")
    kv.delete("ORDER_TOPIC_CONFIG", "bills")
    again = loaded(path)
    assert again.get("ORDER_TOPIC_CONFIG", "orders") == "broker-a:4"
    assert again.namespace("ORDER_TOPIC_CONFIG") == {"orders": "broker-a:4"}


def test_the_file_is_rocketmqs(tmp_path: Path) -> None:
    path = tmp_path / "kvConfig.json"
    loaded(path).put("n", "k", "v")
    assert json.loads(path.read_bytes()) == {"configTable": {"n": {"k": "v"}}}
    path.write_text('{"configTable":{"PROJECT_CONFIG":{"10.0.0.1":"shop"}}}')
    assert loaded(path).get("PROJECT_CONFIG", "10.0.0.1") == "shop"


def test_a_namespace_stays_when_its_last_key_goes() -> None:
    kv = KvConfig()
    kv.load()
    assert kv.namespace("n") is None
    kv.delete("n", "k")
    assert kv.namespace("n") is None
    kv.put("n", "k", "v")
    kv.delete("n", "k")
    assert kv.namespace("n") == {}
    assert kv.get("n", "k") is None


def test_what_the_disk_did_not_take_is_not_told_either(tmp_path: Path) -> None:
    class FullDisk(Disk):
        def write_whole(self, path: Path, content: bytes) -> None:
            raise OSError(28, "No space left on device")

    kv = KvConfig(tmp_path / "kvConfig.json", FullDisk())
    with pytest.raises(OSError, match="No space"):
        kv.put("n", "k", "v")
    assert kv.get("n", "k") is None


@pytest.mark.parametrize("content", [b"{", b"[]", b'{"configTable":{"n":3}}', b'"\xff"'])
def test_a_file_that_cannot_be_read_is_named(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "kvConfig.json"
    path.write_bytes(content)
    with pytest.raises(KvConfigDamaged, match=str(path)):
        loaded(path)
