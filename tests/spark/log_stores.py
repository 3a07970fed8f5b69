"""Stores for the log reader's tests, and what it reads of them without Spark."""

import datetime as dt
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from cometmq.protocol.compression import decompress
from cometmq.protocol.flags import is_queued
from cometmq.protocol.host import pack_host
from cometmq.protocol.layout import BLANK_MAGIC
from cometmq.protocol.message import Message, StoredMessage
from cometmq.protocol.message_id import offset_id
from cometmq.protocol.record import iter_records
from cometmq.spark.log.files import files_at
from cometmq.spark.log.options import read_log_options
from cometmq.spark.log.ranges import Part, plan
from cometmq.spark.log.reading import read_part
from cometmq.spark.schema import COLUMNS, ON_REQUEST
from cometmq.store.message_store import MessageStore
from tests.store.stores import fill, small_config

ALL_COLUMNS = (*COLUMNS, *ON_REQUEST)
Row = dict[str, Any]


def filled(root: Path, count: int = 1000, **changes: Any) -> Path:
    """A store that was closed in order; it takes several files of each kind."""
    with MessageStore(small_config(root, **changes)) as store:
        fill(store, count)
    return root


def with_messages(root: Path, *messages: Message, **changes: Any) -> Path:
    with MessageStore(small_config(root, **changes)) as store:
        store.append_all(messages)
        store.dispatch()
    return root


def planned(path: Path | str, **options: Any) -> list[Part]:
    settings = read_log_options(_given(path, options))
    return plan(files_at(settings.path), settings)


def rows_of(path: Path | str, parts: list[Part], **options: Any) -> list[Row]:
    return _read(path, parts, options, ALL_COLUMNS)


def values_of(path: Path | str, parts: list[Part], column: str, **options: Any) -> list[Any]:
    """One column of them, which is quicker."""
    return [row[column] for row in _read(path, parts, options, (column,))]


def _read(
    path: Path | str, parts: list[Part], options: Mapping[str, Any], columns: tuple[str, ...]
) -> list[Row]:
    settings = read_log_options(_given(path, options))
    batches = (batch for part in parts for batch in read_part(settings, part, columns))
    return [row for batch in batches for row in batch.to_pylist()]


def rows(path: Path | str, **options: Any) -> list[Row]:
    """All that a read with these options gives."""
    return rows_of(path, planned(path, **options), **options)


def _given(path: Path | str, options: Mapping[str, Any]) -> dict[str, str]:
    return {"path": str(path), **{name: str(value) for name, value in options.items()}}


def log_files(root: Path) -> list[Path]:
    return sorted((root / "commitlog").iterdir())


def stored(root: Path, *, queued: bool = True) -> Iterator[StoredMessage]:
    """Every record of the log, decoded by other means than the reader's."""
    for path in log_files(root):
        data = path.read_bytes()
        end = data.find(BLANK_MAGIC.to_bytes(4, "big")) - 4
        end = end if end >= 0 else len(data.rstrip(b"\0"))
        for message in iter_records(memoryview(data)[:end]):
            if is_queued(message.sys_flag) or not queued:
                yield message


def as_row(message: StoredMessage, broker_name: str | None = None) -> Row:
    properties = message.property_map()
    packed = pack_host(*message.store_host)
    return {
        "topic": message.topic,
        "brokerName": broker_name,
        "queueId": message.queue_id,
        "queueOffset": message.queue_offset,
        "msgId": properties.get("UNIQ_KEY") or offset_id(packed, message.physical_offset),
        "bornTimestamp": _moment(message.born_timestamp),
        "storeTimestamp": _moment(message.store_timestamp),
        "keys": properties.get("KEYS"),
        "tags": properties.get("TAGS"),
        "body": decompress(message.body, message.sys_flag),
        "reconsumeTimes": message.reconsume_times,
        "bornHost": str(message.born_host),
        "storeHost": str(message.store_host),
        "sysFlag": message.sys_flag,
        "physicalOffset": message.physical_offset,
        "properties": list(properties.items()),
    }


def _moment(milliseconds: int) -> dt.datetime:
    return dt.datetime(1970, 1, 1, tzinfo=dt.UTC) + dt.timedelta(milliseconds=milliseconds)
