"""Keys and values by namespace, kept for brokers and clients: above all the order of topics.

A change is on disk before it is seen: what is told to anybody survives a restart. Without a file
everything is in memory only.
"""

from pathlib import Path

import msgspec

from cometmq.store.config_file import ConfigFile
from cometmq.store.disk import Disk

ORDER_TOPIC_CONFIG = "ORDER_TOPIC_CONFIG"
"""Namespace: topic → `broker:queues;…`."""

Table = dict[str, dict[str, str]]


class KvConfigDamaged(ValueError):
    """The file is there but cannot be read; the text names it."""


class _Content(msgspec.Struct, rename="camel"):
    config_table: Table = {}


class KvConfig:
    def __init__(self, path: Path | None = None, disk: Disk | None = None) -> None:
        self._file = ConfigFile(path, disk) if path is not None else None
        self._table: Table = {}

    def load(self) -> None:
        if self._file is None:
            return
        try:
            content = self._file.load()
            if content is not None:
                self._table = msgspec.convert(content, _Content).config_table
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            raise KvConfigDamaged(f"{self._file.path} cannot be read: {error}") from None

    def get(self, namespace: str, key: str) -> str | None:
        return self._table.get(namespace, {}).get(key)

    def namespace(self, namespace: str) -> dict[str, str] | None:
        """Its keys and values; None for one that never had any."""
        return self._table.get(namespace)

    def put(self, namespace: str, key: str, value: str) -> None:
        self._change(namespace, {**self._table.get(namespace, {}), key: value})

    def delete(self, namespace: str, key: str) -> None:
        found = self._table.get(namespace, {})
        if key in found:
            self._change(namespace, {k: v for k, v in found.items() if k != key})

    def _change(self, namespace: str, content: dict[str, str]) -> None:
        table = {**self._table, namespace: content}
        if self._file is not None:
            self._file.save(_Content(table))
        self._table = table
