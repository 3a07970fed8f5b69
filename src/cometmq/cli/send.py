"""`cometmq send`: messages from the command line, a file, or what another program writes."""

import argparse
import asyncio
import concurrent.futures
import contextlib
import datetime as dt
import os
import sys
import threading
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any, Final

import msgspec

from cometmq.client.errors import ClientError
from cometmq.client.message import Message
from cometmq.client.producer.producer import Producer
from cometmq.client.producer.results import SendResult, SendStatus
from cometmq.transport.loop import run

from .arguments import add_output_option, count, moment_ms, pair, positive, span_s
from .connection import add_connection_options, cluster_of
from .exits import Exit, WrongUse
from .failures import told, told_text
from .pace import Pace
from .progress import Progress
from .resending import GROUP
from .serving import complain
from .view import as_json

IN_FLIGHT: Final = 256
PIECES_MAX: Final = 16
PIECE_BYTES: Final = 64 * 1024


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Sends BODY, a file, or every line of stdin or of a file, and tells where each message is."
    )
    parser.add_argument("topic")
    parser.add_argument("body", nargs="?", help="the message; `-`: every line of stdin is one")
    parser.add_argument("--file", type=Path, metavar="FILE", help="one message: all of a file")
    parser.add_argument("--lines", type=Path, metavar="FILE", help="every line is a message")
    parser.add_argument(
        "-k", "--key", action="append", default=[], help="finds it again; may be given again"
    )
    parser.add_argument("-t", "--tag", default="", help="consumers filter by it")
    parser.add_argument(
        "-p", "--property", action="append", default=[], type=pair, metavar="NAME=VALUE",
        help="may be given again",
    )  # fmt: skip
    parser.add_argument(
        "--order-key", default="", metavar="KEY",
        help="messages with the same one go to the same queue, one after the other",
    )  # fmt: skip
    later = parser.add_mutually_exclusive_group()
    later.add_argument("--delay", type=span_s, metavar="TIME", help="deliver it later: 500ms, 10m")
    later.add_argument("--at", type=moment_ms, metavar="WHEN", help="deliver it then")
    later.add_argument("--delay-level", type=count, metavar="N", help="1 (1 s) to 18 (2 h)")
    parser.add_argument("--count", type=count, default=1, metavar="N", help="send all N times (1)")
    parser.add_argument("--rate", type=positive, metavar="N", help="at most so many a second")
    parser.add_argument("-g", "--group", default=GROUP, help=f"of producers ({GROUP})")
    parser.add_argument("-q", "--quiet", action="store_true", help="tell the sum alone")
    add_output_option(parser)
    add_connection_options(parser)
    parser.set_defaults(run=_run)


def _run(options: argparse.Namespace) -> int:
    given = sum(source is not None for source in (options.body, options.file, options.lines))
    if given != 1:
        raise WrongUse("give one of BODY, `-` (lines of stdin), --file and --lines")
    return run(_send_all(options))


class _Tally:
    """What became of the messages, told as it is known."""

    def __init__(self, options: argparse.Namespace, progress: Progress) -> None:
        self._options = options
        self._progress = progress
        self.sent = 0
        self.failed = 0
        self.code = Exit.DONE

    def add(self, future: "asyncio.Future[SendResult]") -> None:
        error = None if future.cancelled() else future.exception()
        if isinstance(error, ClientError):
            self._fail(error)
        elif error is None and not future.cancelled():
            self.sent += 1
            self._progress.advance()
            if not self._options.quiet:
                sys.stdout.write(self._line(future.result()))
                if self._options.body == "-":
                    # Who writes the lines may wait for this one's before the next.
                    sys.stdout.flush()

    def _fail(self, error: ClientError) -> None:
        if not self.failed:  # One stands for all: they mostly fail alike.
            complain(told_text(error))
            self.code = (told(error) or (Exit.FAILED, ""))[0]
        self.failed += 1

    def _line(self, result: SendResult) -> str:
        fields = sent_fields(result)
        if self._options.output == "json":
            return as_json(fields)
        safe = "" if result.status is SendStatus.OK else f" ({result.status.value})"
        where = f"{fields['broker']}, queue {fields['queue']}, offset {fields['offset']}"
        return f"{result.message_id}  {where}{safe}\n"


def sent_fields(result: SendResult) -> dict[str, Any]:
    return {
        "message_id": result.message_id,
        "offset_id": result.offset_message_id,
        "topic": result.queue.topic,
        "broker": result.queue.broker_name,
        "queue": result.queue.queue_id,
        "offset": result.queue_offset,
        "status": result.status.value,
        "recall_handle": result.recall_handle,
    }


async def _send_all(options: argparse.Namespace) -> int:
    template = _template(options)
    with Progress("sent", options.count if options.body not in (None, "-") else None) as progress:
        tally = _Tally(options, progress)
        async with Producer(
            cluster_of(options), group=options.group, timeout_s=options.timeout,
            max_in_flight=IN_FLIGHT,
        ) as producer:  # fmt: skip
            await _send_each(producer, template, options, tally)
        if options.quiet:
            _tell_sum(options, tally, progress)
    return tally.code


async def _send_each(
    producer: Producer, template: Message, options: argparse.Namespace, tally: _Tally
) -> None:
    pace = Pace(options.rate)
    async for body in _bodies(options):
        message = msgspec.structs.replace(template, body=body)
        await pace.turn()
        if options.order_key:
            # One behind the other: of several under way, one may be tried again behind the others.
            sent = asyncio.ensure_future(producer.send(message))
            await asyncio.wait([sent])
            tally.add(sent)
        else:
            await producer.ready()
            producer.send_nowait(message, callback=tally.add)
        if tally.failed and not tally.sent:
            break  # Nothing goes through: a million lines would fail alike.
    await producer.flush()


def _tell_sum(options: argparse.Namespace, tally: _Tally, progress: Progress) -> None:
    facts = {"sent": tally.sent, "failed": tally.failed, "seconds": round(progress.seconds, 3)}
    if options.output == "json":
        sys.stdout.write(as_json(facts))
    else:
        sys.stdout.write(
            f"{tally.sent} sent, {tally.failed} failed, {progress.seconds:.1f} s, "
            f"{progress.rate:,.0f}/s\n"
        )


def _template(options: argparse.Namespace) -> Message:
    at = None if options.at is None else dt.datetime.fromtimestamp(options.at / 1000, dt.UTC)
    return Message(
        options.topic,
        b"",
        tags=options.tag,
        keys=options.key,
        properties=dict(options.property),
        sharding_key=options.order_key,
        delay_level=options.delay_level or 0,
        delay=None if options.delay is None else dt.timedelta(seconds=options.delay),
        deliver_at=at,
    )


async def _bodies(options: argparse.Namespace) -> AsyncIterator[bytes]:
    if options.body == "-":
        async for line in _lines_of(sys.stdin.fileno()):
            for _ in range(options.count):
                yield line
        return
    for body in _given(options):
        for _ in range(options.count):
            yield body


def _given(options: argparse.Namespace) -> Iterator[bytes]:
    if options.body is not None:
        yield options.body.encode(errors="surrogateescape")
    elif options.file is not None:
        yield options.file.read_bytes()
    else:
        with options.lines.open("rb") as file:
            yield from filter(None, map(_stripped, file))


async def _lines_of(descriptor: int) -> AsyncIterator[bytes]:
    """As they come: a program that writes slowly does not hold up what it has written."""
    pieces: asyncio.Queue[bytes] = asyncio.Queue(PIECES_MAX)
    loop = asyncio.get_running_loop()

    def read() -> None:
        # Not through sys.stdin, whose lock a daemon would hold when the program ends.
        with contextlib.suppress(RuntimeError, concurrent.futures.CancelledError):  # We ended.
            while piece := os.read(descriptor, PIECE_BYTES):
                asyncio.run_coroutine_threadsafe(pieces.put(piece), loop).result()
            asyncio.run_coroutine_threadsafe(pieces.put(b""), loop).result()

    # A daemon: Ctrl-C does not wait for the next line.
    threading.Thread(target=read, daemon=True).start()
    rest = b""
    while piece := await pieces.get():
        *lines, rest = (rest + piece).split(b"\n")
        for line in filter(None, map(_stripped, lines)):
            yield line
    if body := _stripped(rest):
        yield body


def _stripped(line: bytes) -> bytes:
    return line.rstrip(b"\r\n")
