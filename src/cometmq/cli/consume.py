"""`cometmq consume`: messages of a topic, as a member of a group."""

import argparse
import asyncio
import datetime as dt
import sys
from collections.abc import Sequence
from typing import Final

from cometmq.client.consumer.pull import PullConsumer
from cometmq.client.consumer.subscriptions import ConsumeFrom, Filter, Sql
from cometmq.client.received import ReceivedMessage
from cometmq.transport.loop import run

from .arguments import add_output_option, count, moment_ms, span_s
from .connection import add_connection_options, cluster_of
from .letters import fields_of, line_of
from .serving import unless, until_signal
from .view import as_json

POLL_S: Final = 60.0
AT_ONCE: Final = 32


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Prints messages until Ctrl-C, and commits what it has printed. A new group begins where "
        "RocketMQ's do: at the oldest message of a topic that has not lost any yet, else at the "
        "newest."
    )
    parser.add_argument("topic")
    parser.add_argument("-g", "--group", required=True, help="the consumer group")
    wanted = parser.add_mutually_exclusive_group()
    wanted.add_argument("--tags", default="*", metavar="A||B", help="only with these (all)")
    wanted.add_argument("--sql", metavar="EXPRESSION", help='only those, as in "price > 10"')
    parser.add_argument(
        "--from", dest="begin", type=_beginning, default=ConsumeFrom.LAST, metavar="WHERE",
        help="where a new group begins: first, last, a time or how long ago (15m)",
    )  # fmt: skip
    parser.add_argument("--max", type=count, metavar="N", help="end after so many")
    parser.add_argument(
        "--idle", type=span_s, metavar="TIME", help="end when nothing has come for so long: 5s"
    )
    parser.add_argument("--no-ack", action="store_true", help="commit nothing")
    add_print_options(parser)
    add_connection_options(parser)
    parser.set_defaults(run=_run)


def add_print_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--raw", action="store_true", help="print bodies alone, as they are")
    add_output_option(parser)


def _beginning(text: str) -> ConsumeFrom | dt.datetime:
    named = {"first": ConsumeFrom.FIRST, "last": ConsumeFrom.LAST}.get(text)
    return named or dt.datetime.fromtimestamp(moment_ms(text) / 1000, dt.UTC)


def _run(options: argparse.Namespace) -> int:
    return run(_consume(options))


async def _consume(options: argparse.Namespace) -> int:
    ended = until_signal()
    wanted: Filter = Sql(options.sql) if options.sql else options.tags
    async with PullConsumer(
        cluster_of(options), group=options.group, topics={options.topic: wanted},
        consume_from=options.begin, auto_commit=not options.no_ack,
    ) as consumer:  # fmt: skip
        await _print(consumer, options, ended)
    return 0


async def _print(consumer: PullConsumer, options: argparse.Namespace, ended: asyncio.Event) -> None:
    left = options.max
    while left is None or left > 0:
        at_most = AT_ONCE if left is None else min(AT_ONCE, left)
        messages = await unless(ended, consumer.poll(options.idle or POLL_S, at_most))
        if messages is None or (not messages and options.idle):
            return
        write_messages(messages, options)
        left = None if left is None else left - len(messages)
        if not options.no_ack and messages:
            await consumer.commit()  # Printed is consumed.


def write_messages(messages: Sequence[ReceivedMessage], options: argparse.Namespace) -> None:
    if options.raw:
        data = b"".join(message.body + b"\n" for message in messages)
    elif options.output == "json":
        data = "".join(as_json(fields_of(message)) for message in messages).encode()
    else:
        data = "".join(map(line_of, messages)).encode()
    # Where Python does not buffer (PYTHONUNBUFFERED), one write may take a part only.
    while data:
        data = data[sys.stdout.buffer.write(data) :]
    sys.stdout.flush()
