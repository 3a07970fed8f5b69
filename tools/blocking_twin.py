"""Writes src/cometmq/client/blocking.py: the asyncio clients once more, with calls that block.

Reads the classes as source text and keeps their signatures, defaults and docstrings; a method of
the twin does nothing but have the same method run in the shared loop. What an annotation or default
names is imported from where its class has it. Run by `make twin`; a test compares.
"""

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).parents[1]
TARGET = ROOT / "src" / "cometmq" / "client" / "blocking.py"
PACKAGE = "cometmq.client"
CLIENTS = {
    "Producer": "producer.producer",
    "TransactionProducer": "producer.transactions",
    "PushConsumer": "consumer.push",
    "PullConsumer": "consumer.pull",
    "Admin": "admin.admin",
}
PARTS = {
    "Brokers": "admin.brokers",
    "Groups": "admin.groups",
    "Members": "admin.members",
    "Messages": "admin.messages",
    "Namesrvs": "admin.namesrvs",
    "Offsets": "admin.offsets",
    "Topics": "admin.topics",
}
INTERNAL = {"PullConsumer": {"deliver", "taken", "given_up", "released"}}
"""Called by the client's own parts, not by users."""
RENAMED = {"__aenter__": "__enter__", "__aexit__": "__exit__", "__aiter__": "__iter__"}
TYPES = [
    (r"""['"]?asyncio\.Future\[(\w+)\]['"]?""", r"Future[\1]"),
    (r"\bCallback\b", "Callable[[Future[SendResult]], object]"),
    (r"\bAsyncIterator\b", "Iterator"),
    (r"\bAsyncGenerator\[(\w+), None\]", r"Generator[\1, None, None]"),
]
"""How types of the asyncio clients are said without a loop."""
WORDS = [(r"\bawait ", ""), (r"\basync (with|for)\b", r"\1")]
"""The same for examples in docstrings."""
EVERYWHERE = {
    "Callable": "collections.abc",
    "Future": "concurrent.futures",
    "Generator": "collections.abc",
    "Iterator": "collections.abc",
}
HEAD = '''\
"""The clients with calls that block, for scripts and threads: the same classes, without `await`.

Made by tools/blocking_twin.py out of the asyncio clients, which say what everything does: change
those and run `make twin`. All clients of a process share one event loop in a background thread. A
call takes as long as the asyncio one, its errors are raised here, and Ctrl-C cancels it.
"""
'''

Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass
class Imports:
    """What the twin needs, and from where."""

    names: dict[str, str] = field(default_factory=dict)
    """The statement that brings each name."""

    def add(self, name: str, statement: str) -> None:
        if name in PARTS | CLIENTS:
            raise SystemExit(f"`{statement}`: the twin has a class of that name; rename one")
        known = self.names.setdefault(name, statement)
        if known != statement:
            raise SystemExit(f"{name} is two things: `{known}` and `{statement}`")

    def __str__(self) -> str:
        return "\n".join(sorted(set(self.names.values())))


class Module:
    """A module of the client, and where each of its names comes from."""

    def __init__(self, name: str) -> None:
        self.name = f"{PACKAGE}.{name}"
        path = ROOT / "src" / Path(*self.name.split(".")).with_suffix(".py")
        self.tree = ast.parse(path.read_text())
        self.origins = dict(self._origins())

    def class_named(self, name: str) -> ast.ClassDef:
        found = (node for node in self.tree.body if isinstance(node, ast.ClassDef))
        return next(node for node in found if node.name == name)

    def _origins(self) -> Iterator[tuple[str, str]]:
        for node in self.tree.body:
            if isinstance(node, ast.ImportFrom):
                source = self._absolute(node)
                for alias in node.names:
                    yield alias.asname or alias.name, f"from {source} import {ast.unparse(alias)}"
            elif isinstance(node, ast.Import):
                for alias in node.names:
                    yield alias.asname or alias.name, f"import {ast.unparse(alias)}"
            else:
                for name in _defined(node):
                    yield name, f"from {self.name} import {name}"

    def _absolute(self, node: ast.ImportFrom) -> str:
        parts = self.name.split(".")[: -node.level] if node.level else []
        return ".".join([*parts, *([node.module] if node.module else [])])


def _defined(node: ast.stmt) -> Iterator[str]:
    if isinstance(node, ast.ClassDef):
        yield node.name
    elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
        yield node.target.id
    elif isinstance(node, ast.Assign):
        yield from (target.id for target in node.targets if isinstance(target, ast.Name))


class Twin:
    """One class of the twin, as text."""

    def __init__(self, name: str, module: Module, imports: Imports) -> None:
        self.name = name
        self.node = module.class_named(name)
        functions = [node for node in self.node.body if isinstance(node, Function)]
        self.init = next(node for node in functions if node.name == "__init__")
        self._module = module
        self._imports = imports
        # Its own name is the twin's.
        self._inner = f"{module.name.removeprefix(PACKAGE + '.').replace('.', '_')}.{name}"
        package, _, last = module.name.rpartition(".")
        alias = self._inner.partition(".")[0]
        imports.add(alias, f"from {package} import {last} as {alias}")

    def text(self, base: "Twin | None") -> str:
        head = f"class {self.name}({base.name}):" if base else f"class {self.name}:"
        parts = [
            *_docstring(self.node), f"_inner: {self._inner}", self._made(base), *self._methods(),
        ]  # fmt: skip
        return "\n".join([head, *map(_indented, parts)])

    # -- how it is made --------------------------------------------------------------------------

    def _made(self, base: "Twin | None") -> str:
        self._imports.add("Home", f"from {PACKAGE}.shared_loop import Home")
        if self.name in PARTS:
            signature = f"def __init__(self, inner: {self._inner}, home: Home) -> None:"
            lines = ["self._inner = inner", "self._home = home"]
        else:
            signature = self._signature(self.init)
            lines = [
                *_docstring(self.init),
                f"self._inner = {self._inner}({_passed_on(self.init.args)})",
                "self._home = Home(self._inner)",
                *(line for twin in (base, self) if twin for line in _attributes(twin.init)),
            ]
        return "\n".join([signature, *map(_indented, lines)])

    # -- what it does ----------------------------------------------------------------------------

    def _methods(self) -> Iterator[str]:
        left_out = INTERNAL.get(self.name, set())
        for node in self.node.body:
            if not isinstance(node, Function) or node.name in left_out:
                continue
            if node.name in RENAMED or not node.name.startswith("_"):
                yield self._method(node)

    def _method(self, node: Function) -> str:
        lines = [
            *(["@property"] if _is_property(node) else []),
            self._signature(node),
            *map(_indented, _docstring(node)),
            _indented(self._body(node)),
        ]
        return "\n".join(lines)

    def _body(self, node: Function) -> str:
        reached = f"self._inner.{node.name}"
        if _is_property(node):
            return f"return self._home.run(lambda: {reached})"
        call = f"{reached}({_passed_on(node.args)})"
        if node.name == "__aenter__":
            return f"self._home.call({call})\nreturn self"
        if _yields(node):
            return f"return self._home.iterate({call})"
        if isinstance(node, ast.AsyncFunctionDef):
            return f"return self._home.call({call})"
        if "Future" in ast.unparse(node.returns or ast.Constant(None)):
            call = f"{reached}({_passed_on(node.args, without='callback')})"
            return f"return self._home.future(lambda: {call}, callback)"
        function = f"lambda: {call}" if _passed_on(node.args) else reached
        return f"return self._home.run({function})"

    def _signature(self, node: Function) -> str:
        returned = ast.unparse(node.returns) if node.returns else "None"
        name = RENAMED.get(node.name, node.name)
        text = f"def {name}({ast.unparse(node.args)}) -> {returned}:"
        for pattern, said in TYPES:
            text = re.sub(pattern, said, text)
        self._import_names(text)
        return text

    def _import_names(self, signature: str) -> None:
        for node in ast.walk(ast.parse(f"{signature} ...")):
            if not isinstance(node, ast.Name):
                continue
            if node.id in EVERYWHERE:
                self._imports.add(node.id, f"from {EVERYWHERE[node.id]} import {node.id}")
            elif node.id in self._module.origins:
                self._imports.add(node.id, self._module.origins[node.id])


def _attributes(init: Function) -> Iterator[str]:
    """Public ones that are set when it is made; those that are clients' parts become twins, too."""
    for statement in init.body:
        match statement:
            case ast.Assign(
                targets=[ast.Attribute(value=ast.Name("self"), attr=name)],
                value=ast.Call(func=ast.Name(maker)),
            ) if not name.startswith("_"):
                inner = f"self._inner.{name}"
                made = f"{maker}({inner}, self._home)" if maker in PARTS else inner
                yield f"self.{name} = {made}"


def _docstring(node: ast.ClassDef | Function) -> list[str]:
    """One text, or none."""
    text = ast.get_docstring(node)
    if text is None:
        return []
    for pattern, said in WORDS:
        text = re.sub(pattern, said, text)
    return [f'"""{text}\n"""' if "\n" in text else f'"""{text}"""']


def _passed_on(arguments: ast.arguments, without: str = "") -> str:
    plain = [a.arg for a in (*arguments.posonlyargs, *arguments.args) if a.arg != "self"]
    named = [f"{a.arg}={a.arg}" for a in arguments.kwonlyargs if a.arg != without]
    rest = [f"**{arguments.kwarg.arg}"] if arguments.kwarg else []
    return ", ".join([*plain, *named, *rest])


def _is_property(node: Function) -> bool:
    return any(ast.unparse(decorator) == "property" for decorator in node.decorator_list)


def _yields(node: Function) -> bool:
    return any(isinstance(inside, ast.Yield) for inside in ast.walk(node))


def _indented(text: str) -> str:
    return "\n".join(f"    {line}" if line else "" for line in text.splitlines())


def source() -> str:
    """The twin as it should be, before it is laid out."""
    imports = Imports()
    twins: dict[str, Twin] = {}
    texts = []
    for name, module in (PARTS | CLIENTS).items():
        twin = twins[name] = Twin(name, Module(module), imports)
        bases = [ast.unparse(base) for base in twin.node.bases]
        texts.append(twin.text(next((twins[base] for base in bases if base in twins), None)))
    public = f"__all__ = {sorted(PARTS | CLIENTS)!r}"
    return "\n\n".join([HEAD, str(imports), public, *texts]) + "\n"


def laid_out(text: str) -> str:
    """As `make lint` wants it."""
    for command in (["check", "--select", "I", "--fix", "--quiet"], ["format", "--quiet"]):
        ruff = [sys.executable, "-m", "ruff", *command, "--stdin-filename", str(TARGET), "-"]
        text = subprocess.run(ruff, input=text, text=True, check=True, capture_output=True).stdout
    return text


def main() -> None:
    TARGET.write_text(laid_out(source()))


if __name__ == "__main__":
    main()
