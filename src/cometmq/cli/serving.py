"""Running servers in the foreground until a signal ends them."""

import asyncio
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
        loop.add_reader(sys.stdin.fileno(), ended.set)
    return ended


def say_ready(what: str) -> None:
    """The one line on stdout by which others know that everything serves."""
    sys.stdout.write(f"ready {what}\n")
    sys.stdout.flush()


def raise_file_limit() -> None:
    """As many open files as this process may have: each connection is one, each mapped file too."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def complain(text: str) -> None:
    sys.stderr.write(f"cometmq: {text}\n")
