"""A redrive that reads its letters by itself, and is killed with one of its requests under way:
`python -m tests.spark.redrive_without_spark NAMESRV GROUP REQUEST`; 0 is not killed.

Spark alone would take most of the time of tests that do this often.
"""

import asyncio
import datetime as dt
import itertools
import os
import random
import signal
import sys
from collections.abc import Iterator
from typing import Any

from pyspark.sql import Row

from cometmq.client.admin import Admin
from cometmq.client.cluster import Cluster
from cometmq.client.link import Link
from cometmq.protocol.message_queue import MessageQueue
from cometmq.spark.pipelines.redrive import Redriven, _Run
from cometmq.spark.pipelines.redrive_desk import RedriveDesk
from cometmq.transport.background import BackgroundLoop


class Letters:
    """Rows as Spark would give them."""

    def __init__(self, rows: list[Row]) -> None:
        self._rows = rows

    def toLocalIterator(self) -> Iterator[Row]:  # noqa: N802 - Spark's name
        return iter(self._rows)


async def read(namesrv: str, starts: dict[MessageQueue, int]) -> list[Row]:
    async with Admin(namesrv) as admin:
        return [
            Row(
                topic=queue.topic, brokerName=queue.broker_name, queueId=queue.queue_id,
                queueOffset=one.queue_offset, msgId=one.message_id, stored_ms=one.store_timestamp,
                tags=one.tags, keys=" ".join(one.keys), reconsumeTimes=one.reconsume_times,
                body=one.body, properties=one.properties, chosen=True,
                storeTimestamp=dt.datetime.now(dt.UTC),
            )
            for queue, start in starts.items()
            async for one in admin.messages.read(queue, start=start)
        ]  # fmt: skip


def die_at(number: int) -> None:
    """With the request of that number sent and perhaps answered, perhaps not."""
    ask, asked = Link.ask, itertools.count(1)

    async def fatal(link: Link, *arguments: Any, **more: Any) -> Any:
        if next(asked) != number:
            return await ask(link, *arguments, **more)
        last = asyncio.ensure_future(ask(link, *arguments, **more))
        await asyncio.wait([last], timeout=random.choice([0, 0.002, 0.02]))
        os.kill(os.getpid(), signal.SIGKILL)
        raise AssertionError("killed")

    setattr(Link, ask.__name__, fatal)


def main(namesrv: str, group: str, fatal: str) -> None:
    die_at(int(fatal))
    background = BackgroundLoop("victim")
    background.start()
    desk = RedriveDesk(Cluster(namesrv), group)
    background.call(desk.open())
    background.call(desk.lock(0.0, lambda: None))
    rows = asyncio.run(read(namesrv, background.call(desk.starts())))
    told = Redriven(group, dry_run=False)
    letters: Any = Letters(rows)
    _Run(background, desk, "", 300.0, told, lambda _: None).redrive(letters, None)
    background.call(desk.close())


if __name__ == "__main__":
    main(*sys.argv[1:])
