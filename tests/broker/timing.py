"""What tests of timed messages share: sends with a time, arrivals, crashes of a broker."""

import os
import shutil
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from cometmq.broker.broker import Broker
from cometmq.broker.delays import Delays
from cometmq.broker.timers.timers import Timers
from cometmq.protocol.command import Command
from cometmq.protocol.message import StoredMessage

from .brokers import TOPIC, Client, context_of, until

TIMER_TOPIC = "rmq_sys_wheel_timer"
SCHEDULE = "SCHEDULE_TOPIC_XXXX"
"""Where messages wait that have a delay level."""
ZEROS = bytes(256 * 1024)
SECOND_MS, HOUR_MS, DAY_MS = 1000, 3_600_000, 86_400_000


def timers_of(broker: Broker) -> Timers:
    timers = broker.parts.duties.timers
    assert timers is not None
    return timers


def delays_of(broker: Broker) -> Delays:
    return broker.parts.duties.delays


async def send_at(client: Client, due_ms: int, body: bytes = b"later", **how: Any) -> Command:
    """Send a message that is due at a millisecond."""
    properties = {"TIMER_DELIVER_MS": str(due_ms), "KEYS": body.decode()}
    answer = await client.send(body=body, properties=properties, **how)
    assert answer.code == 0, answer.remark
    return answer


async def arrived(client: Client, count: int, queue_id: int = 0) -> list[StoredMessage]:
    """So many messages of the topic, however long they take to come."""
    found: list[StoredMessage] = []
    while len(found) < count:
        found += await client.arrival(TOPIC, queue_id, len(found))
    return found


async def bodies(client: Client, queue_id: int = 0) -> list[bytes]:
    """Everything that is in the topic now."""
    return [message.body for message in await client.pulled(TOPIC, queue_id)]


async def crashed(broker: Broker, image: Path) -> Path:
    """A copy of a running broker's store: what a kill at this moment would leave.

    Not in the midst of a save: files are copied one after the other, and no kill would leave a
    new checkpoint beside an old wheel. Nor files that are being made: they get their names while
    others are copied.
    """
    timers = timers_of(broker)
    await until(lambda: timers._saving is None)
    root = context_of(broker).store.config.root
    unfinished = shutil.ignore_patterns("*.tmp", "*.new")
    shutil.copytree(root, image, ignore=unfinished, copy_function=copy_sparse)
    return image


def copy_sparse(source: str, target: str) -> str:
    """A copy with the holes of the original: a wheel is 38 MB of nothing, and disks are slow."""
    with Path(source).open("rb") as original, Path(target).open("wb") as copy:
        while chunk := original.read(len(ZEROS)):
            if chunk == ZEROS:
                copy.seek(len(chunk), os.SEEK_CUR)
            else:
                copy.write(chunk)
        copy.truncate(original.tell())
    return target


def twice(found: Iterable[bytes]) -> list[bytes]:
    """What is there more than once."""
    return [body for body, count in Counter(found).items() if count > 1]
