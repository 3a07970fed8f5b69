"""Running servers in the foreground until a signal ends them, watched by those who want to."""

import asyncio
import contextlib
import logging
import os
import resource
import signal
import socket
import sys
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, TypeVar

from cometmq.settings import BadSetting

T = TypeVar("T")
log = logging.getLogger(__name__)
Reread = Callable[[], Awaitable[tuple[list[str], list[str]]]]
"""Reads settings again: the keys that changed, and those that need a restart."""


def until_signal(*, or_stdin_ends: bool = False) -> asyncio.Event:
    """An event that SIGTERM or SIGINT sets, or the end of who started us and holds our stdin."""
    ended = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, ended.set)
    if or_stdin_ends:
        stdin = sys.stdin.fileno()

        def stdin_ended() -> None:
            loop.remove_reader(stdin)  # It stays readable, and would be told so again and again.
            ended.set()

        loop.add_reader(stdin, stdin_ended)
    return ended


async def unless(ended: asyncio.Event, work: Coroutine[Any, Any, T]) -> T | None:
    """What the work gives; None, and the work is cancelled, when the event comes first."""
    task, signalled = asyncio.create_task(work), asyncio.create_task(ended.wait())
    both: list[asyncio.Task[Any]] = [task, signalled]
    try:
        await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
        return task.result() if task.done() else None
    finally:
        for one in both:
            one.cancel()


def on_hangup(reread: Reread) -> None:
    """Read settings again at SIGHUP, and say what came of it."""
    loop = asyncio.get_running_loop()
    tasks: set[asyncio.Task[None]] = set()

    def hung_up() -> None:
        task = loop.create_task(_reread(reread))
        tasks.add(task)
        task.add_done_callback(tasks.discard)

    loop.add_signal_handler(signal.SIGHUP, hung_up)


async def _reread(reread: Reread) -> None:
    try:
        changed, fixed = await reread()
    except BadSetting as error:
        log.error("settings stay as they are: %s", error)
        return
    log.warning("settings read again, changed: %s", ", ".join(changed) or "none")
    if fixed:
        log.warning("these take effect at the next start: %s", ", ".join(fixed))


def say_ready(what: str, *metrics: str) -> None:
    """The one line on stdout by which others know that everything serves."""
    found = ",".join(filter(None, metrics))
    sys.stdout.write(f"ready {what}{f' metrics={found}' if found else ''}\n")
    sys.stdout.flush()
    _notify("READY=1")


def _notify(state: str) -> None:
    """Tell systemd, if it asked to be told (`Type=notify`)."""
    address = os.environ.get("NOTIFY_SOCKET", "")
    if not address:
        return
    if address.startswith("@"):  # Of Linux's own namespace, without a file.
        address = "\0" + address[1:]
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as supervisor:
        supervisor.sendto(state.encode(), address)


def raise_file_limit() -> None:
    """As many open files as this process may have: each connection is one, each mapped file too."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(OSError, ValueError):  # Some systems name a limit that they refuse.
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def complain(text: str) -> None:
    sys.stderr.write(f"cometmq: {text}\n")
