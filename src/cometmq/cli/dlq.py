"""`cometmq dlq`: messages that a group failed at too often."""

import argparse
import signal
from collections.abc import Iterator
from typing import Any, Final

from cometmq.client import blocking
from cometmq.client.admin import Admin
from cometmq.client.admin.offsets import EARLIEST, LATEST
from cometmq.client.errors import TopicNotFound
from cometmq.client.received import ReceivedMessage
from cometmq.protocol.names import DEAD_LETTER_PREFIX
from cometmq.spark.dead_letters.letters import Candidate, letter_of
from cometmq.spark.dead_letters.redriving import redrive_letters
from cometmq.spark.topic.offsets import ByQueue

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
    rows = [_row(letter) for letter in letters]
    value = [{**fields_of(letter), "origin": letter_of(letter).origin} for letter in letters]
    return View(value, [Table(columns, rows)])


def _row(letter: ReceivedMessage) -> dict[str, Any]:
    return {
        "stored_at": letter.store_timestamp,
        "topic": letter_of(letter).origin,
        "tags": letter.tags,
        "keys": letter.keys,
        "tries": letter.reconsume_times,
        "message_id": letter.message_id,
        "body": brief(letter.body),
    }


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
        for letter in admin.messages.read(queue, start=start):
            chosen = letter_of(letter) if _is_chosen(letter, options) else None
            yield Candidate(queue, letter.queue_offset, chosen)


def _is_chosen(letter: ReceivedMessage, options: argparse.Namespace) -> bool:
    return (
        (not options.tag or letter.tags in options.tag)
        and (not options.key or not set(options.key).isdisjoint(letter.keys))
        and (options.since_ms is None or letter.store_timestamp >= options.since_ms)
        and (options.until_ms is None or letter.store_timestamp < options.until_ms)
    )
