"""Arrows between the rooms point one way."""

import ast
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[1] / "src" / "cometmq"
BESIDE = {"clock", "files", "histogram", "logs", "observed", "ports", "settings", "sources"}
"""Single modules that all rooms but the pure one may use."""
MAY_IMPORT = {
    "protocol": {"protocol"},
    "store": {"store", "protocol", *BESIDE},
    "transport": {"transport", "protocol", *BESIDE},
    "replication": {"replication", "raft", "transport", "store", "protocol", *BESIDE},
    "namesrv": {"namesrv", "transport", "store", "protocol", *BESIDE},
    "broker": {"broker", "replication", "raft", "transport", "store", "protocol", *BESIDE},
    "client": {"client", "transport", "protocol", *BESIDE},
    "raft": {"raft", "protocol"},
    "spark": {"spark", "client", "store", "transport", "protocol", *BESIDE},
    "testing": {
        "testing",
        "client",
        "broker",
        "namesrv",
        "transport",
        "store",
        "protocol",
        *BESIDE,
    },
    "web": {"web", "broker", "namesrv", "replication", "transport", "store", "protocol", *BESIDE},
    "cli": {
        "cli",
        "web",
        "client",
        "spark",
        "namesrv",
        "broker",
        "transport",
        "store",
        "protocol",
        *BESIDE,
    },
}


def rooms_imported(path: Path) -> set[str]:
    """The rooms that a module imports, by absolute or relative name."""
    rooms = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            names = [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
        elif isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        else:
            continue
        rooms |= {name.split(".")[1] for name in names if name.startswith("cometmq.")}
    return {room for room in rooms if (SOURCE / room).is_dir() or room in BESIDE}


@pytest.mark.parametrize("room", MAY_IMPORT)
def test_a_room_imports_only_what_lies_below_it(room: str) -> None:
    for path in (SOURCE / room).rglob("*.py"):
        assert rooms_imported(path) <= MAY_IMPORT[room], path


def test_every_room_has_its_rule() -> None:
    rooms = {path.parent.name for path in SOURCE.glob("*/__init__.py")}
    assert rooms == set(MAY_IMPORT)
