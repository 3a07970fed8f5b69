"""`cometmq dlq`: messages that a group failed at too often."""

import argparse
import asyncio
import functools
import signal
from collections.abc import Callable, Iterator
from typing import Any, Final, TypeVar

import msgspec

from cometmq.client import blocking
from cometmq.client.admin import Admin
from cometmq.client.admin.offsets import EARLIEST, LATEST
from cometmq.client.errors import TopicNotFound
from cometmq.client.received import ReceivedMessage
from cometmq.protocol.flags import COMPRESSED
from cometmq.protocol.message_queue import MessageQueue
from cometmq.protocol.names import DEAD_LETTER_PREFIX
from cometmq.spark.dead_letters.desk import AWAY_FOR_NOW
from cometmq.spark.dead_letters.letters import Candidate, Letter, letter_of
from cometmq.spark.dead_letters.redriving import WINDOW, redrive_letters
from cometmq.spark.topic.offsets import ByQueue
from cometmq.spark.topic.patience import patiently

from .arguments import add_output_option, add_time_options, count, positive
from .asking import asks, in_turns
from .connection import add_connection_options, cluster_of
from .exits import NothingThere
from .letters import brief, fields_of
from .progress import Progress
from .redriven import leave, tell
from .serving import complain
from .view import Table, View, of_rows

LIMIT: Final = 20
T = TypeVar("T")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(required=True, metavar="ACTION")
    asks(actions.add_parser("list", help="groups with dead letters"), _list, watch=True)
    shown = actions.add_parser("show", help="the newest dead letters of a group")
    shown.add_argument("group")
    shown.add_argument("--limit", type=count, default=LIMIT, metavar="N", help=f"so many ({LIMIT})")
    asks(shown, _show)
    redriven = actions.add_parser(
        "redrive",
        help="send dead letters to their topics again, each once",
        description="Can be stopped or killed at any time and run again, also with another choice: "
        "a letter that is in its topic already is not sent once more. Body, tags, keys and the "
        "sender's properties stay. All groups that read the topic get the message. For very many "
        "letters, or to choose them by SQL, `cometmq spark redrive` does the same.",
    )
    redriven.add_argument("group")
    redriven.add_argument("--to", default="", metavar="TOPIC", help="instead of the first topics")
    redriven.add_argument("--tag", action="append", default=[], help="only with this; repeatable")
    redriven.add_argument("--key", action="append", default=[], help="only with this; repeatable")
    add_time_options(redriven)
    redriven.add_argument(
        "--limit", type=count, metavar="N", help="at most so many that are not there yet"
    )
    redriven.add_argument("--rate", type=positive, metavar="N", help="at most so many a second")
    redriven.add_argument(
        "--dry-run", action="store_true", help="tell what would be sent, and send nothing"
    )
    add_output_option(redriven)
    add_connection_options(redriven)
    redriven.set_defaults(run=_redrive)


async def _list(admin: Admin, _: argparse.Namespace) -> View:
    names = await admin.topics.names(internal=True)
    groups = [n.removeprefix(DEAD_LETTER_PREFIX) for n in names if n.startswith(DEAD_LETTER_PREFIX)]
    rows = await in_turns(_summary(admin, group) for group in groups)
    return of_rows([row for row in rows if row["letters"]], "group", "letters", "last_letter_at")


async def _summary(admin: Admin, group: str) -> dict[str, Any]:
    stats = await admin.topics.stats(DEAD_LETTER_PREFIX + group)
    return {
        "group": group,
        "letters": stats.messages,
        "last_letter_at": stats.last_update_timestamp,
    }


async def _show(admin: Admin, options: argparse.Namespace) -> View:
    topic = DEAD_LETTER_PREFIX + options.group
    letters: list[ReceivedMessage] = []
    try:
        ends = await admin.offsets.search_topic(topic, LATEST)
        begins = await admin.offsets.search_topic(topic, EARLIEST)
    except TopicNotFound:
        raise NothingThere(
            f"group {options.group} has no dead letters; `cometmq dlq list` shows who has"
        ) from None
    for queue, end in ends.items():
        start = max(begins[queue], end - options.limit)
        letters += [one async for one in admin.messages.read(queue, start=start, stop=end)]
    letters = sorted(letters, key=lambda letter: letter.store_timestamp)[-options.limit :]
    columns = ("stored_at", "topic", "tags", "keys", "tries", "message_id", "body")
    told = [(message, letter_of(message)) for message in letters]
    rows = [_row(message, letter) for message, letter in told]
    return View([_fields(message, letter) for message, letter in told], [Table(columns, rows)])


def _row(message: ReceivedMessage, letter: Letter) -> dict[str, Any]:
    return {
        "stored_at": message.store_timestamp,
        "topic": letter.origin,
        "tags": message.tags,
        "keys": message.keys,
        "tries": message.reconsume_times,
        "message_id": message.message_id,
        "body": f"({letter.unreadable})" if letter.unreadable else brief(message.body),
    }


def _fields(message: ReceivedMessage, letter: Letter) -> dict[str, Any]:
    """A body that cannot be unpacked is told as it is stored, and why."""
    if not letter.unreadable:
        return {**fields_of(message), "origin": letter.origin}
    stored = msgspec.structs.replace(message, sys_flag=message.sys_flag & ~COMPRESSED)
    return {**fields_of(stored), "origin": letter.origin, "unreadable": letter.unreadable}


# -- sending again -------------------------------------------------------------------------------


def _redrive(options: argparse.Namespace) -> int:
    signal.signal(signal.SIGTERM, leave)
    cluster = cluster_of(options)
    with blocking.Admin(cluster) as admin, Progress("letters") as shown:
        told = redrive_letters(
            cluster,
            options.group,
            lambda starts: _candidates(admin, starts, options),
            to=options.to,
            limit=options.limit,
            rate=options.rate,
            dry_run=options.dry_run,
            on_progress=lambda told: shown.advance(told.letters - shown.done),
            on_wait=lambda: complain("another redrive holds these letters: waiting for its end …"),
        )
    return tell(told, options)


def _candidates(
    admin: blocking.Admin, starts: ByQueue, options: argparse.Namespace
) -> Iterator[Candidate]:
    for queue, start in starts.items():
        end = _patiently(functools.partial(admin.offsets.max, queue), f"asking where {queue} ends")
        for first in range(start, end, WINDOW):
            read = functools.partial(_letters, admin, queue, first, min(end, first + WINDOW))
            for letter in _patiently(read, f"reading {queue}"):
                chosen = letter_of(letter) if _is_chosen(letter, options) else None
                yield Candidate(queue, letter.queue_offset, chosen)


def _letters(
    admin: blocking.Admin, queue: MessageQueue, start: int, end: int
) -> list[ReceivedMessage]:
    return list(admin.messages.read(queue, start=start, stop=end))


def _patiently(work: Callable[[], T], what: str) -> T:
    """As letters are sent: their broker may be started anew meanwhile."""
    return asyncio.run(patiently(lambda: asyncio.to_thread(work), what, AWAY_FOR_NOW))


def _is_chosen(letter: ReceivedMessage, options: argparse.Namespace) -> bool:
    return (
        (not options.tag or letter.tags in options.tag)
        and (not options.key or not set(options.key).isdisjoint(letter.keys))
        and (options.since_ms is None or letter.store_timestamp >= options.since_ms)
        and (options.until_ms is None or letter.store_timestamp < options.until_ms)
    )
