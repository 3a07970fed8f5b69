"""Where a server's settings come from: TOML files, RocketMQ's `.conf` files, the environment,
flags. The later one wins, and everybody can be told who said what.
"""

import re
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from .settings import BadSetting, nearest, read_file

_HUMP = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|\.")


class Given(NamedTuple):
    value: Any
    origin: str


def variable(role: str, key: str) -> str:
    """The environment variable for a key: `listenPort` is COMETMQ_BROKER__LISTEN_PORT.

    Two underscores, since Kubernetes makes variables of a Service's name with one."""
    return _prefix(role) + _HUMP.sub("_", key).upper()


def gather(
    role: str,
    keys: Collection[str],
    files: Sequence[Path],
    environment: Mapping[str, str],
    flags: Mapping[str, Given],
) -> dict[str, Given]:
    """All values that were given, with where they come from. `keys` are those that may stand in
    the environment; what files and flags say is not looked at here."""
    found: dict[str, Given] = {}
    for path in sorted(files, key=lambda path: path.suffix != ".toml"):
        for key, value in read_file(path).items():
            found[key] = Given(value, f"file {path}")
    found |= _of_environment(role, keys, environment)
    return {**found, **flags}


def values(given: Mapping[str, Given]) -> dict[str, Any]:
    return {key: one.value for key, one in given.items()}


def _of_environment(
    role: str, keys: Collection[str], environment: Mapping[str, str]
) -> dict[str, Given]:
    by_variable = {variable(role, key): key for key in keys}
    found = {}
    for name, value in environment.items():
        if not name.startswith(_prefix(role)):
            continue
        if name not in by_variable:
            raise BadSetting(
                f"unknown setting {name} in the environment{nearest(name, by_variable)}"
            )
        found[by_variable[name]] = Given(value, f"environment {name}")
    return found


def _prefix(role: str) -> str:
    return f"COMETMQ_{role.upper()}__"
