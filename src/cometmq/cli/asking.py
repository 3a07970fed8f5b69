"""Commands that ask a cluster something and show the answer, once or again and again."""

import argparse
import asyncio
import functools
import sys
import time
from collections.abc import Awaitable, Callable, Iterable
from typing import Final, TypeVar

from cometmq.client.admin import Admin
from cometmq.client.admin.reach import together
from cometmq.client.errors import AnswerTimedOut, ConnectionLost, Unreachable

from .arguments import add_output_option, add_watch_option
from .connection import add_connection_options, cluster_of
from .failures import told_text
from .serving import complain
from .view import View, as_json, as_text, moment

T = TypeVar("T")
Ask = Callable[[Admin, argparse.Namespace], Awaitable[View]]
AT_ONCE: Final = 16
_CLEAR: Final = "\x1b[2J\x1b[H"
_AWAY: Final = (AnswerTimedOut, ConnectionLost, Unreachable)


def asks(parser: argparse.ArgumentParser, ask: Ask, *, watch: bool = False) -> None:
    """Have a parser's command show what `ask` finds out."""
    add_output_option(parser)
    if watch:
        add_watch_option(parser)
    add_connection_options(parser)
    parser.set_defaults(run=functools.partial(_run, ask))


def show(view: View, options: argparse.Namespace) -> None:
    sys.stdout.write(as_json(view.value) if options.output == "json" else as_text(view))
    sys.stdout.flush()


async def in_turns(work: Iterable[Awaitable[T]]) -> list[T]:
    """All results; so that a thousand topics are not asked for at once."""
    turns = asyncio.Semaphore(AT_ONCE)

    async def one(awaited: Awaitable[T]) -> T:
        async with turns:
            return await awaited

    return await together(*map(one, work))


def _run(ask: Ask, options: argparse.Namespace) -> int:
    if getattr(options, "watch", None) is None:
        return asyncio.run(_once(ask, options))
    try:
        return asyncio.run(_watch(ask, options))
    except KeyboardInterrupt:
        return 0


async def _once(ask: Ask, options: argparse.Namespace) -> int:
    async with Admin(cluster_of(options)) as admin:
        view = await ask(admin, options)
    show(view, options)
    return view.exit_code


async def _watch(ask: Ask, options: argparse.Namespace) -> int:
    async with Admin(cluster_of(options)) as admin:
        while True:
            try:
                view = await ask(admin, options)
            except _AWAY as error:  # Who watches wants to see it come back.
                complain(told_text(error))
            else:
                if options.output == "table":
                    sys.stdout.write(_top(options.watch))
                show(view, options)
            await asyncio.sleep(options.watch)


def _top(every_s: float) -> str:
    clear = _CLEAR if sys.stdout.isatty() else ""
    return f"{clear}{moment(time.time() * 1000)}, every {every_s:g} s\n"
