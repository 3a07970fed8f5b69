"""Values of options as Spark hands them over: texts, to be read and checked.

Pure. What cannot be read is refused with the option's name. The source, the log reader and the
sink read their options with these.
"""

import difflib
import re
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import msgspec

from .errors import BadOption
from .schema import COLUMNS, ON_REQUEST

_OF_TABLES = "provider"
"""What Spark adds to the options of `CREATE TABLE`."""


def refuse_tables(given: Mapping[str, str], source: str, *, in_use: bool) -> None:
    """A table of `CREATE TABLE` has options when it is made, and none when it is used: Spark keeps
    none for sources in Python. One whose columns are stated is not asked for before it is used."""
    if (not given) if in_use else (_OF_TABLES in given):
        raise BadOption(
            f"{source} needs options, and Spark does not keep those of CREATE TABLE for it: "
            f"CREATE TEMPORARY VIEW name USING `{source}` OPTIONS (…) has them"
        )


def canonical(given: Mapping[str, str], known_names: Collection[str]) -> dict[str, str]:
    """Spark does not mind upper and lower case in names."""
    names = {name.lower(): name for name in known_names}
    options = {}
    for name, value in given.items():
        known = names.get(name.lower())
        if known is None:
            near = difflib.get_close_matches(name.lower(), names, 1)
            hint = f"; did you mean {names[near[0]]}?" if near else ""
            raise BadOption(f"unknown option {name}{hint}")
        options[known] = value
    return options


def columns(options: Mapping[str, str]) -> tuple[str, ...]:
    more = ("properties",) if boolean(options, "includeProperties", False) else ()
    chosen = listed(options.get("columns", ""))
    by_name = {name.lower(): name for name in (*COLUMNS, *ON_REQUEST)}
    unknown = [name for name in chosen if name.lower() not in by_name]
    if unknown:
        raise BadOption(f"columns: no column {unknown[0]}; there are {', '.join(by_name.values())}")
    names = tuple(by_name[name.lower()] for name in chosen) or COLUMNS
    if twice := named_twice(names):
        raise BadOption(f"columns: {twice} is named twice")
    return (*names, *(name for name in more if name not in names))


def named_twice(names: Sequence[str]) -> str:
    """The first of them that is; empty if none."""
    return next((name for name in names if names.count(name) > 1), "")


def json(name: str, value: str, kind: Any) -> Any:
    try:
        return msgspec.json.decode(value, type=kind)
    except msgspec.MsgspecError as error:
        raise BadOption(f"{name} is not the JSON that it should be: {error}") from None


def listed(value: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in value.split(",") if part.strip())


def boolean(options: Mapping[str, str], name: str, default: bool) -> bool:
    value = options.get(name)
    if value is None:
        return default
    if value.lower() not in ("true", "false"):
        raise BadOption(f"{name} is true or false, not {value!r}")
    return value.lower() == "true"


def count(options: Mapping[str, str], name: str) -> int | None:
    if name not in options:
        return None
    count = whole(name, options[name])
    if count < 1:
        raise BadOption(f"{name}: 1 or more is possible")
    return count


def whole(name: str, value: str) -> int:
    try:
        return int(value)
    except ValueError:
        raise BadOption(f"{name} is a whole number, not {value!r}") from None


_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86400.0}


def duration_s(options: Mapping[str, str], name: str, default: float) -> float:
    match = re.fullmatch(r"(\d+)\s*([a-z]+)", options.get(name, "").strip().lower())
    if name not in options:
        return default
    if match is None or match[2] not in _UNITS:
        raise BadOption(f"{name} is a time with its unit, as in 30s, 15m or 1h")
    return int(match[1]) * _UNITS[match[2]]
