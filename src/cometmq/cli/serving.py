"""Running servers in the foreground until a signal ends them."""

import asyncio
import contextlib
import resource
import signal
import sys


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


def say_ready(what: str) -> None:
    """The one line on stdout by which others know that everything serves."""
    sys.stdout.write(f"ready {what}\n")
    sys.stdout.flush()


def raise_file_limit() -> None:
    """As many open files as this process may have: each connection is one, each mapped file too."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(OSError, ValueError):  # Some systems name a limit that they refuse.
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def complain(text: str) -> None:
    sys.stderr.write(f"cometmq: {text}\n")
