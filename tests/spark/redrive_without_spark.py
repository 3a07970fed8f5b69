"""A redrive that reads its letters by itself, and is killed with one of its requests under way:
`python -m tests.spark.redrive_without_spark NAMESRV GROUP REQUEST`; 0 is not killed.

Spark alone would take most of the time of tests that do this often.
"""

import asyncio
import itertools
import os
import random
import signal
import sys
from typing import Any

from cometmq.client.admin import Admin
from cometmq.client.cluster import Cluster
from cometmq.client.link import Link
from cometmq.spark.dead_letters.letters import Candidate, letter_of
from cometmq.spark.dead_letters.redriving import redrive_letters
from cometmq.spark.topic.offsets import ByQueue


async def read(namesrv: str, starts: ByQueue) -> list[Candidate]:
    async with Admin(namesrv) as admin:
        return [
            Candidate(queue, one.queue_offset, letter_of(one))
            for queue, start in starts.items()
            async for one in admin.messages.read(queue, start=start)
        ]


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

    def letters(starts: ByQueue) -> list[Candidate]:
        return asyncio.run(read(namesrv, starts))

    redrive_letters(Cluster(namesrv), group, letters, rate=300.0, wait_s=0.0)


if __name__ == "__main__":
    main(*sys.argv[1:])
