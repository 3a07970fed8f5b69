"""The guide tells the truth: its programs run and are typed, its tables are what the code says."""

import ast
import asyncio
import contextlib
import dataclasses
import inspect
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cometmq.client import Admin, Producer, blocking, errors, names
from cometmq.testing import EmbeddedBroker
from cometmq.testing.blocking import BlockingEmbeddedBroker

ROOT = Path(__file__).parents[2]
GUIDE = (ROOT / "docs" / "client.md").read_text()
SNIPPETS = [
    text
    for text in re.findall(
        r"```python\n(.*?)```", (ROOT / "README.md").read_text() + GUIDE, re.DOTALL
    )
    if "cometmq.store" not in text and "cometmq.spark" not in text
]
ADDRESS = "127.0.0.1:9876"
GIVEN = {"producer": "Producer", "admin": "Admin", "stop": "asyncio.Event"}
"""What a snippet may use without making it."""
PRELUDE = f"""\
import asyncio
import datetime as dt
import ssl
from collections.abc import Sequence
from cometmq.client import {", ".join(names.__all__)}
from cometmq.client import blocking
from cometmq.testing import BlockingEmbeddedBroker, EmbeddedBroker
"""


class Snippet:
    """A piece of the guide as a program: wrapped into a function unless it is one already."""

    def __init__(self, text: str) -> None:
        tree = ast.parse(text)
        loaded = {n.id for n in ast.walk(tree) if isinstance(n, ast.Name)}
        stored = {
            n.id for n in ast.walk(tree) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)
        }
        self.given = sorted((loaded - stored) & GIVEN.keys())
        self.is_test = text.startswith("def test_")
        self.is_program = "asyncio.run(" in text
        self.is_async = "await " in text or "async " in text
        self.text = text if self.is_program or self.is_test else self._wrapped(text)

    def _wrapped(self, text: str) -> str:
        parameters = ", ".join(f"{name}: {GIVEN[name]}" for name in self.given)
        word = "async def" if self.is_async else "def"
        body = "".join(f"    {line}\n" if line else "\n" for line in text.splitlines())
        return f"{word} snippet({parameters}) -> None:\n{body}"

    def at(self, address: str) -> str:
        return PRELUDE + self.text.replace(ADDRESS, address)


@pytest.fixture(scope="module")
def broker() -> Iterator[BlockingEmbeddedBroker]:
    settings = {"enablePropertyFilter": True, "recallMessageEnable": True}
    with EmbeddedBroker(in_memory=True, settings=settings) as broker:
        for topic in ("orders", "payments", "offers", "questions"):
            broker.create_topic(topic)
        with blocking.Admin(broker.namesrv) as admin:
            admin.groups.create("bar")
        yield broker


def first_line(text: str) -> str:
    return text.strip().splitlines()[0][:60]


@pytest.mark.parametrize("text", SNIPPETS, ids=first_line)
def test_a_snippet_runs(text: str, broker: BlockingEmbeddedBroker) -> None:
    snippet = Snippet(text)
    space: dict[str, Any] = {"__name__": "snippet"}
    exec(compile(snippet.at(broker.namesrv), "docs/client.md", "exec"), space)
    if snippet.is_test:
        (test,) = (value for name, value in space.items() if name.startswith("test_"))
        test(broker)
    elif not snippet.is_program:
        run(snippet, space["snippet"], broker.namesrv)


def run(snippet: Snippet, function: Any, address: str) -> None:
    if not snippet.is_async:
        function()
        return

    async def main() -> None:
        async with contextlib.AsyncExitStack() as stack:
            stop = asyncio.Event()
            stop.set()
            given = {
                "stop": stop,
                "producer": await stack.enter_async_context(Producer(address, group="guide")),
                "admin": await stack.enter_async_context(Admin(address)),
            }
            await function(**{name: given[name] for name in snippet.given})

    asyncio.run(asyncio.wait_for(main(), timeout=60))


@pytest.mark.timeout(240)
def test_all_snippets_are_typed_strictly(tmp_path: Path) -> None:
    for number, text in enumerate(SNIPPETS):
        (tmp_path / f"snippet_{number}.py").write_text(Snippet(text).at(ADDRESS))
    checked = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", *sorted(p.name for p in tmp_path.iterdir())],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert checked.returncode == 0, checked.stdout
    assert len(SNIPPETS) > 20


# -- tables --------------------------------------------------------------------------------------


def table(mark: str) -> list[list[str]]:
    """The cells of the table behind a mark, without its head."""
    lines = GUIDE.split(f"<!-- {mark} -->\n")[1].splitlines()
    rows = []
    for line in lines[2:]:
        if not line.startswith("|"):
            break
        rows.append([cell.strip() for cell in line.strip("|").split("|")])
    return rows


def said(name: str, value: object) -> str:
    """A default as the guide writes it."""
    if isinstance(value, float):
        return f"{value:g} s"
    if isinstance(value, int) and not isinstance(value, bool):
        if name == "compress_over" or "bytes" in name:
            return f"{value >> 20} MiB" if value >= 1 << 20 else f"{value >> 10} KiB"
        return str(value)
    return f"`{value!r}`"


@pytest.mark.parametrize(
    "kind", ["Cluster", "ProducerOptions", "PushOptions", "PullConsumerOptions", "FlowLimits"]
)
def test_every_option_stands_in_the_guide_with_its_default(kind: str) -> None:
    fields = {f.name: f for f in dataclasses.fields(getattr(names, kind))}
    told = {row[0].strip("`"): row[1] for row in table(f"options: {kind}")}
    assert list(told) == list(fields)
    for name, default in told.items():
        value = fields[name].default
        if value is not dataclasses.MISSING and not dataclasses.is_dataclass(value):
            assert default == said(name, value), name


def test_every_error_stands_in_the_guide_with_what_to_do() -> None:
    kinds = [k for k in vars(errors).values() if inspect.isclass(k)]
    answers = [k for k in kinds if issubclass(k, errors.BrokerError) and k.__doc__ is None]
    wanted = [[f"`{k.__name__}`", str(int(k.code)), k.advice] for k in answers]
    assert table("errors: broker") == wanted, "should be:\n" + rows_of(wanted)
    others = [k for k in kinds if issubclass(k, errors.ClientError) and k not in answers]
    wanted = [[f"`{k.__name__}`", str(k.__doc__)] for k in others if k is not errors.ClientError]
    assert table("errors: client") == wanted, "should be:\n" + rows_of(wanted)


def rows_of(cells: list[list[str]]) -> str:
    return "\n".join(f"| {' | '.join(row)} |" for row in cells)


def test_every_method_of_administration_stands_in_the_guide() -> None:
    for name, part in re.findall(r"\| `admin\.(\w+)` \| (.*) \|", GUIDE):
        kind = getattr(blocking, name.capitalize())
        methods = [m for m in vars(kind) if not m.startswith("_")]
        assert re.findall(r"`(\w+)`", part) == methods


def test_links_of_the_contents_lead_somewhere() -> None:
    headings = re.findall(r"^#+ (.*)$", GUIDE, re.MULTILINE)
    anchors = {re.sub(r"[^\w -]", "", h).lower().replace(" ", "-") for h in headings}
    links = re.findall(r"\]\(#([\w-]+)\)", GUIDE)
    assert len(links) > 10
    assert set(links) <= anchors
