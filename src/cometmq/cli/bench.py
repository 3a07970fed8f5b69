"""`cometmq bench`: put a load on a cluster and measure it, from this one process."""

import argparse
import asyncio
import contextlib
import functools
import os
import secrets
import time
from typing import Any, Final

from cometmq.client.admin import Admin
from cometmq.client.cluster import Cluster
from cometmq.client.consumer.pull import PullConsumer
from cometmq.client.consumer.subscriptions import ConsumeFrom
from cometmq.client.errors import ClientError
from cometmq.client.message import Message
from cometmq.client.producer.producer import Producer
from cometmq.client.producer.results import SendResult
from cometmq.transport.loop import run

from .arguments import add_output_option, count, positive
from .asking import show
from .connection import add_connection_options, cluster_of
from .exits import Exit
from .failures import told_text
from .pace import Pace
from .progress import Progress
from .serving import complain
from .topic import until_routed
from .view import View, lines_of

PREFIX: Final = "COMETMQ_BENCH_"
MESSAGES: Final = 20_000
SIZE: Final = 1024
IN_FLIGHT: Final = 256
IDLE_S: Final = 10.0
"""A drain to which nothing has come for so long has what it can get."""
POLL: Final = 512


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Sends messages, reads them again, and tells how fast that was. A topic of its own is made "
        "and deleted, unless one is named."
    )
    parser.add_argument("--topic", default="", help="a topic that is there")
    parser.add_argument(
        "--messages", type=count, default=MESSAGES, metavar="N", help=f"so many ({MESSAGES})"
    )
    parser.add_argument(
        "--size", type=count, default=SIZE, metavar="BYTES", help=f"of a body ({SIZE})"
    )
    parser.add_argument(
        "--in-flight", type=count, default=IN_FLIGHT, metavar="N",
        help=f"messages that wait for their answers at the same time ({IN_FLIGHT}); 1: one by one",
    )  # fmt: skip
    parser.add_argument("--queues", type=count, default=8, metavar="N", help="of its topic (8)")
    parser.add_argument("--rate", type=positive, metavar="N", help="send at most so many a second")
    parser.add_argument("--no-consume", action="store_true", help="send only")
    add_output_option(parser)
    add_connection_options(parser)
    parser.set_defaults(run=_run)


def _run(options: argparse.Namespace) -> int:
    return run(_bench(options))


async def _bench(options: argparse.Namespace) -> int:
    name = PREFIX + secrets.token_hex(4)
    cluster = cluster_of(options)
    async with Admin(cluster) as admin, contextlib.AsyncExitStack() as stack:
        if options.topic:
            await admin.topics.route(options.topic)
        else:
            await admin.topics.create(name, queues=options.queues)
            stack.push_async_callback(admin.topics.delete, name)
            await until_routed(admin, name)
        topic = options.topic or name
        figures: dict[str, Any] = {"topic": topic, "size": options.size}
        figures["send"] = await _send(cluster, topic, name, options)
        if not options.no_consume and figures["send"]["messages"]:
            stack.push_async_callback(admin.groups.delete, name)
            figures["consume"] = await _drain(cluster, topic, name, figures["send"]["messages"])
    show(_view(figures), options)
    return Exit.FAILED if _is_short(figures) else Exit.DONE


def _is_short(figures: dict[str, Any]) -> bool:
    sent = figures["send"]
    return bool(sent["failed"]) or figures.get("consume", sent)["messages"] < sent["messages"]


# -- sending -------------------------------------------------------------------------------------


async def _send(
    cluster: Cluster, topic: str, tag: str, options: argparse.Namespace
) -> dict[str, Any]:
    message = Message(topic, os.urandom(options.size), tags=tag)
    took_s: list[float] = []
    failures: list[BaseException] = []
    pace = Pace(options.rate)
    with Progress("sent", options.messages) as progress:

        def sent_at(began: float, future: "asyncio.Future[SendResult]") -> None:
            if future.cancelled():
                return
            error = future.exception()
            if error is not None:
                failures.append(error)
            else:
                took_s.append(time.perf_counter() - began)
                progress.advance()

        producer = Producer(
            cluster, group=tag, timeout_s=options.timeout, max_in_flight=options.in_flight
        )
        async with producer:
            await producer.send(message)  # Routes and connections are there, before it counts.
            began = time.perf_counter()
            for _ in range(options.messages - 1):
                await pace.turn()
                await producer.ready()
                now = time.perf_counter()
                producer.send_nowait(message, callback=functools.partial(sent_at, now))
                if failures and not took_s:
                    break
            await producer.flush()
            seconds = time.perf_counter() - began
    _complain(failures)
    return {
        **_rates(len(took_s) + 1, seconds, options.size),
        "failed": len(failures),
        "latency_ms": percentiles(took_s),
    }


def _complain(failures: list[BaseException]) -> None:
    if failures:
        first = failures[0]
        text = told_text(first) if isinstance(first, ClientError) else repr(first)
        complain(f"{len(failures)} sends failed, the first one so: {text}")


# -- reading -------------------------------------------------------------------------------------


async def _drain(cluster: Cluster, topic: str, name: str, wanted: int) -> dict[str, Any]:
    """Only what this run has sent: it has a tag of its own."""
    read = bytes_read = 0
    with Progress("read", wanted) as progress:
        async with PullConsumer(
            cluster, group=name, topics={topic: name}, consume_from=ConsumeFrom.FIRST
        ) as consumer:
            began = time.perf_counter()
            while read < wanted and (messages := await consumer.poll(IDLE_S, POLL)):
                read += len(messages)
                bytes_read += sum(len(message.stored_body) for message in messages)
                progress.advance(len(messages))
            seconds = time.perf_counter() - began
    return _rates(read, seconds, bytes_read / read if read else 0)


# -- figures -------------------------------------------------------------------------------------


def _rates(messages: int, seconds: float, size: float) -> dict[str, Any]:
    per_s = messages / seconds if seconds else 0.0
    return {
        "messages": messages,
        "seconds": round(seconds, 3),
        "messages_per_s": round(per_s, 1),
        "mb_per_s": round(per_s * size / 1e6, 2),
    }


def percentiles(took_s: list[float]) -> dict[str, float]:
    if not took_s:
        return {}
    ordered = sorted(took_s)
    shares = {"p50": 0.5, "p95": 0.95, "p99": 0.99, "max": 1.0}
    return {
        name: round(ordered[min(len(ordered) - 1, int(share * len(ordered)))] * 1000, 3)
        for name, share in shares.items()
    }


def _view(figures: dict[str, Any]) -> View:
    parts = [lines_of({"topic": figures["topic"], "body": f"{figures['size']} bytes"})]
    parts += [lines_of(figures[p], p) for p in ("send", "consume") if p in figures]
    return View(figures, parts)
