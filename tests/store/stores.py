"""Small stores for tests, and what to ask of them."""

import dataclasses
from pathlib import Path
from typing import Any

from cometmq.protocol.message import Message, StoredMessage
from cometmq.protocol.properties import encode_properties
from cometmq.protocol.record import iter_records
from cometmq.protocol.scan import split_queue_key
from cometmq.store.config import StoreConfig
from cometmq.store.message_store import MessageStore
from cometmq.store.reading import ReadStatus

TOPICS = ("orders", "payments", "%RETRY%billing")
QUEUES = 4


def small_config(root: Path, **changes: Any) -> StoreConfig:
    """A few messages fill files of this size, so that every boundary is crossed."""
    config = StoreConfig(
        root=root,
        commit_log_file_bytes=64 * 1024,
        consume_queue_file_bytes=20 * 50,
        index_slots=64,
        index_items=500,
    )
    return dataclasses.replace(config, **changes)


def numbered(number: int, body_bytes: int = 0) -> Message:
    """The message that belongs to a number: topic, queue, keys, tag and body follow from it."""
    topic = TOPICS[number % len(TOPICS)]
    properties = {
        "UNIQ_KEY": f"{number:032X}",
        "KEYS": f"key-{number} group-{number % 7}",
        "TAGS": f"tag-{number % 4}",
        "文": "宝",
    }
    body = f"message {number} ".encode().ljust(body_bytes, b"x")
    return Message(
        topic=topic,
        queue_id=number % QUEUES,
        body=body,
        properties=encode_properties(properties),
        flag=number,
        born_timestamp=1_700_000_000_000 + number,
    )


def fill(store: MessageStore, count: int, first: int = 0, body_bytes: int = 0) -> None:
    for number in range(first, first + count):
        store.append(numbered(number, body_bytes))
        if number % 5 == 0:
            store.dispatch()
    store.dispatch()


def served(store: MessageStore) -> dict[tuple[str, int, int], StoredMessage]:
    """Every message that the store hands out, by topic, queue and offset."""
    found = {}
    for key, queue in store.queues:
        topic, queue_id = split_queue_key(key)
        offset = queue.min_offset
        while True:
            result = store.read(topic, queue_id, offset)
            for piece in result.slices:
                for message in iter_records(piece):
                    found[topic, queue_id, message.queue_offset] = message
            if result.status in (
                ReadStatus.OFFSET_OVERFLOW_ONE,
                ReadStatus.NO_MESSAGE_IN_QUEUE,
            ):
                break
            offset = result.next_offset
    return found


def served_numbers(store: MessageStore) -> list[int]:
    return sorted(int(message.body.split()[1]) for message in served(store).values())


def crash(store: MessageStore) -> None:
    """Stop as a killed process does: nothing flushed, nothing noted, `abort` left behind."""
    store._opened = False
    store._flusher.stop()
    store._keeper.stop()
    store.commit_log.stop()
    store._presence.leave(clean=False)
    store._release_files()


def files_of(root: Path, *directories: str) -> dict[str, bytes]:
    """Content of all files below the given directories of a store."""
    return {
        str(path.relative_to(root)): path.read_bytes()
        for directory in directories
        for path in sorted((root / directory).rglob("*"))
        if path.is_file()
    }
