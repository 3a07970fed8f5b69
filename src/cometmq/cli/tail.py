"""`cometmq tail`: the newest messages of a topic, read by nobody's group."""

import argparse
import asyncio
from collections.abc import Iterable, Mapping
from contextlib import aclosing
from typing import Final

from cometmq.client.admin import Admin
from cometmq.client.admin.offsets import EARLIEST, LATEST
from cometmq.client.errors import AnswerTimedOut, ConnectionLost, NoRoute, Unreachable
from cometmq.client.received import ReceivedMessage
from cometmq.protocol.message_queue import MessageQueue
from cometmq.transport.loop import run

from .arguments import moment_ms
from .connection import add_connection_options, cluster_of
from .consume import add_print_options, write_messages
from .failures import told_text
from .serving import complain, unless, until_signal

LAST: Final = 10
_AWAY: Final = (AnswerTimedOut, ConnectionLost, NoRoute, Unreachable)
_RETRY_S: Final = 1.0
_NEW_QUEUES_S: Final = 30.0
Starts = dict[MessageQueue, int]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Prints the last messages of a topic, oldest first, and with -f those that follow. Leaves "
        "no trace: no group is made, no offset is committed."
    )
    parser.add_argument("topic")
    where = parser.add_mutually_exclusive_group()
    where.add_argument("--last", type=_number, metavar="N", help=f"so many ({LAST}; with -f none)")
    where.add_argument(
        "--since", dest="since_ms", type=moment_ms, metavar="WHEN",
        help="all from then on: a time (2026-11-16T08:00) or how long ago (15m)",
    )  # fmt: skip
    parser.add_argument("-f", "--follow", action="store_true", help="go on until Ctrl-C")
    parser.add_argument("--tags", default="*", metavar="A||B", help="only with these (all)")
    add_print_options(parser)
    add_connection_options(parser)
    parser.set_defaults(run=_run)


def _number(text: str) -> int:
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r}: a whole number is expected")
    return int(text)


def _run(options: argparse.Namespace) -> int:
    return run(_tail(options))


async def _tail(options: argparse.Namespace) -> int:
    async with Admin(cluster_of(options)) as admin:
        ends = await admin.offsets.search_topic(options.topic, LATEST)
        await _print_there(admin, options, ends)
        if options.follow:
            await _follow(admin, options, ends)
    return 0


async def _print_there(admin: Admin, options: argparse.Namespace, ends: Starts) -> None:
    """What is there before `ends`."""
    if options.since_ms is not None:
        starts = await admin.offsets.search_topic(options.topic, options.since_ms)
        keep = None
    else:
        keep = options.last if options.last is not None else (0 if options.follow else LAST)
        first = await admin.offsets.search_topic(options.topic, EARLIEST)
        starts = {queue: max(first.get(queue, 0), end - keep) for queue, end in ends.items()}
    found: list[ReceivedMessage] = []
    for queue, end in ends.items():
        found += await _read(admin, queue, starts.get(queue, end), end, options.tags)
    found.sort(key=lambda message: message.store_timestamp)
    write_messages(found if keep is None else found[len(found) - min(keep, len(found)) :], options)


async def _read(
    admin: Admin, queue: MessageQueue, start: int, stop: int, tags: str
) -> list[ReceivedMessage]:
    if start >= stop:
        return []
    return [one async for one in admin.messages.read(queue, start=start, stop=stop, tags=tags)]


# -- following -----------------------------------------------------------------------------------


async def _follow(admin: Admin, options: argparse.Namespace, ends: Starts) -> None:
    ended = until_signal()
    tasks: dict[MessageQueue, asyncio.Task[None]] = {}
    try:
        while not ended.is_set():
            tasks |= _followers(admin, options, ends, tasks)
            broken = await unless(ended, _first_broken(tasks.values()))
            for task in broken or ():
                task.result()
            ends = await _new_queues(admin, options.topic, tasks)
    finally:
        for task in tasks.values():
            task.cancel()
        await asyncio.gather(*tasks.values(), return_exceptions=True)


def _followers(
    admin: Admin,
    options: argparse.Namespace,
    starts: Mapping[MessageQueue, int],
    there: Mapping[MessageQueue, "asyncio.Task[None]"],
) -> dict[MessageQueue, "asyncio.Task[None]"]:
    return {
        queue: asyncio.create_task(_follow_queue(admin, options, queue, start))
        for queue, start in starts.items()
        if queue not in there
    }


async def _first_broken(tasks: Iterable["asyncio.Task[None]"]) -> set["asyncio.Task[None]"]:
    """A follower ends only by an error. None of them has, when it is time to look for queues."""
    done, _ = await asyncio.wait(tasks, timeout=_NEW_QUEUES_S, return_when=asyncio.FIRST_COMPLETED)
    return done


async def _new_queues(admin: Admin, topic: str, known: Mapping[MessageQueue, object]) -> Starts:
    """Queues that the topic has got since, from their beginnings."""
    try:
        starts = await admin.offsets.search_topic(topic, EARLIEST)
    except _AWAY:
        return {}
    return {queue: start for queue, start in starts.items() if queue not in known}


async def _follow_queue(
    admin: Admin, options: argparse.Namespace, queue: MessageQueue, start: int
) -> None:
    at = start
    while True:
        try:
            following = admin.messages.follow(queue, start=at, tags=options.tags)
            async with aclosing(following) as messages:
                async for message in messages:
                    write_messages([message], options)
                    at = message.queue_offset + 1
        except _AWAY as error:
            complain(f"queue {queue.queue_id} of {queue.broker_name}: {told_text(error)}")
            await asyncio.sleep(_RETRY_S)
