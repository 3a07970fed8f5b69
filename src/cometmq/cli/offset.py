"""`cometmq offset`: where groups are in their topics, and moving them."""

import argparse
import re
from collections.abc import Mapping
from typing import Any, Final

from cometmq.client.admin import Admin
from cometmq.client.admin.offsets import EARLIEST, LATEST, Place
from cometmq.client.errors import GroupNotFound
from cometmq.protocol.message_queue import MessageQueue

from .arguments import moment_ms
from .asking import asks
from .exits import NothingThere, WrongUse
from .view import Table, View, of_rows

_QUEUE: Final = re.compile(r"(.+):(\d+)")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(required=True, metavar="ACTION")
    shown = actions.add_parser("show", help="the committed offsets of a group")
    shown.add_argument("group")
    shown.add_argument("topic", nargs="?", default="", help="only in this one")
    asks(shown, _show, watch=True)
    moved = actions.add_parser(
        "reset",
        help="have a group go on elsewhere",
        description="Members that are online hear of it, too.",
    )
    add_reset_arguments(moved)
    asks(moved, reset)
    clone = actions.add_parser("clone", help="have one group go on where another one is")
    clone.add_argument("source", help="the group whose offsets are copied")
    clone.add_argument("target", help="the group that gets them")
    clone.add_argument("topic")
    asks(clone, _clone)


def add_reset_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("group")
    parser.add_argument("topic")
    where = parser.add_mutually_exclusive_group(required=True)
    where.add_argument(
        "--to", type=_place, metavar="WHEN",
        help="earliest, latest, a time (2026-11-16T08:00) or how long ago (15m)",
    )  # fmt: skip
    where.add_argument("--offset", type=int, metavar="N", help="a number, in the queues named")
    parser.add_argument(
        "--queue", action="append", default=[], type=_queue, metavar="BROKER:ID",
        help="for --offset: only this queue; may be given again",
    )  # fmt: skip
    parser.add_argument("--dry-run", action="store_true", help="tell where to, and move nothing")


def _place(text: str) -> Place:
    return LATEST if text == LATEST else EARLIEST if text == EARLIEST else moment_ms(text)


def _queue(text: str) -> tuple[str, int]:
    parts = _QUEUE.fullmatch(text)
    if parts is None:
        raise argparse.ArgumentTypeError(f"{text!r}: a queue is BROKER:ID, as in broker-a:0")
    return parts[1], int(parts[2])


# -- actions -------------------------------------------------------------------------------------


async def _show(admin: Admin, options: argparse.Namespace) -> View:
    progress = await admin.groups.progress(options.group, options.topic)
    if not progress.queues:
        # Nothing committed, or no such group: the two are not the same.
        await admin.groups.config(options.group)
    rows = [
        {
            "topic": queue.topic,
            "broker": queue.broker_name,
            "queue": queue.queue_id,
            "committed": one.consumer_offset,
            "end": one.broker_offset,
            "lag": one.lag,
        }
        for queue, one in progress.queues.items()
    ]
    return of_rows(rows, "topic", "broker", "queue", "committed", "end", "lag")


async def reset(admin: Admin, options: argparse.Namespace) -> View:
    group, topic = options.group, options.topic
    if options.queue and options.offset is None:
        raise WrongUse("--queue goes with --offset")
    before = await admin.offsets.committed(group, topic)
    if options.offset is not None:
        wanted = await _numbered(admin, options)
        if not options.dry_run:
            await admin.offsets.set(group, wanted)
    elif options.dry_run:
        wanted = await admin.offsets.search_topic(topic, options.to)
    else:
        wanted = await admin.offsets.reset(group, topic, options.to)
    return _moves(options, before, wanted)


async def _numbered(admin: Admin, options: argparse.Namespace) -> dict[MessageQueue, int]:
    there = await admin.offsets.search_topic(options.topic, EARLIEST)
    named = {MessageQueue(options.topic, broker, number) for broker, number in options.queue}
    unknown = named - there.keys()
    if unknown:
        gone = ", ".join(sorted(f"{queue.broker_name}:{queue.queue_id}" for queue in unknown))
        raise NothingThere(
            f"topic {options.topic} has no queue {gone}; see `cometmq topic stats {options.topic}`"
        )
    return dict.fromkeys(sorted(named or there, key=_order), options.offset)


def _moves(
    options: argparse.Namespace,
    before: Mapping[MessageQueue, int],
    wanted: Mapping[MessageQueue, int],
) -> View:
    rows: list[dict[str, Any]] = [
        {
            "broker": queue.broker_name,
            "queue": queue.queue_id,
            "before": before.get(queue),
            "after": wanted[queue],
        }
        for queue in sorted(wanted, key=_order)
    ]
    value = {
        "group": options.group,
        "topic": options.topic,
        "dry_run": options.dry_run,
        "queues": rows,
    }
    done = "would go on" if options.dry_run else "goes on"
    heading = f"group {options.group} {done} in {options.topic} at"
    return View(value, [Table(("broker", "queue", "before", "after"), rows, heading)])


def _order(queue: MessageQueue) -> tuple[str, int]:
    return queue.broker_name, queue.queue_id


async def _clone(admin: Admin, options: argparse.Namespace) -> View:
    source = await admin.offsets.committed(options.source, options.topic)
    if not source:
        raise NothingThere(f"group {options.source} has no offsets in {options.topic}")
    try:
        await admin.groups.config(options.target)
    except GroupNotFound:
        await admin.groups.create(options.target)
    before = await admin.offsets.committed(options.target, options.topic)
    await admin.offsets.clone(options.source, options.target, options.topic)
    moved = argparse.Namespace(group=options.target, topic=options.topic, dry_run=False)
    return _moves(moved, before, await admin.offsets.committed(options.target, options.topic))
