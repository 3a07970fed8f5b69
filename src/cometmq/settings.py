"""Settings of a server: where they are declared, and how files give them values.

A role's settings are a frozen dataclass whose fields are made by `setting`, with RocketMQ's own
key. Files are TOML or RocketMQ's `key=value`; both are flat, though a key may have dots. A key that
nobody knows is an error that names the nearest known one.
"""

import dataclasses
import difflib
import enum
import re
import tomllib
import types
import typing
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any, TypeVar

Role = TypeVar("Role")
_TOML_NAMES: dict[type, str] = {dict: "table", list: "list"}
_KIND_NAMES: dict[type, str] = {
    bool: "true | false",
    int: "number",
    float: "number",
    str: "text",
    Path: "path",
}
_SEPARATOR = re.compile(r"\s*[=:]\s*|\s+")


class BadSetting(ValueError):
    """A setting that cannot be taken; the text names it and says what is expected."""


@dataclasses.dataclass(frozen=True)
class Setting:
    key: str
    meaning: str
    unit: str = ""
    """Of a number: what it counts. Empty for what is no quantity."""
    live: bool = False
    """Whether a running server takes a new value, over the wire or when it reads files again."""
    secret: bool = False
    """Whether it is never shown."""


def setting(
    key: str,
    default: Any,
    meaning: str,
    *,
    unit: str = "",
    live: bool = False,
    secret: bool = False,
) -> Any:
    """A field of a settings class, under RocketMQ's key."""
    metadata = {"setting": Setting(key, meaning, unit, live, secret)}
    return dataclasses.field(default=default, metadata=metadata)


def declared(role: type[Any]) -> dict[str, tuple[str, Setting]]:
    """Key → (field name, setting) of a settings class."""
    found = {}
    for field in dataclasses.fields(role):
        if "setting" in field.metadata:
            known: Setting = field.metadata["setting"]
            found[known.key] = (field.name, known)
    return found


def build(role: type[Role], values: Mapping[str, Any], **fixed: Any) -> Role:
    """A settings object out of keys and values, leaving keys of others alone."""
    arguments: dict[str, Any] = {}
    types_by_name = typing.get_type_hints(role)
    for key, (name, _) in declared(role).items():
        if key in values:
            arguments[name] = parse(key, values[key], types_by_name[name])
    arguments |= fixed
    for key in _without_default(role):
        if declared(role)[key][0] not in arguments:
            raise BadSetting(f"{key} is missing")
    try:
        return role(**arguments)
    except ValueError as error:
        raise BadSetting(str(error)) from None


def _without_default(role: type[Any]) -> list[str]:
    return [
        field.metadata["setting"].key
        for field in dataclasses.fields(role)
        if "setting" in field.metadata and field.default is dataclasses.MISSING
    ]


def differences(current: Role, wanted: Role) -> tuple[dict[str, str], list[str]]:
    """What has to change to get from one to the other: the live settings with their new values,
    and the keys of those that only a restart changes."""
    live, fixed = {}, []
    for key, (name, found) in declared(type(current)).items():
        if getattr(current, name) != getattr(wanted, name):
            if found.live:
                live[key] = text(getattr(wanted, name))
            else:
                fixed.append(key)
    return live, fixed


def changed(current: Role, values: Mapping[str, Any]) -> Role:
    """The same settings with some changed; only live ones may be."""
    known = declared(type(current))
    types_by_name = typing.get_type_hints(type(current))
    arguments = {}
    for key, value in values.items():
        if key not in known:
            raise BadSetting(f"unknown setting {key!r}")
        name, found = known[key]
        if not found.live:
            raise BadSetting(f"{key} cannot be changed while the server runs")
        arguments[name] = parse(key, value, types_by_name[name])
    try:
        return dataclasses.replace(current, **arguments)  # type: ignore[type-var]
    except ValueError as error:
        raise BadSetting(str(error)) from None


def as_text(current: Any) -> dict[str, str]:
    """Every setting under its key, as a file would have it; secret ones are left out."""
    return {
        key: text(getattr(current, name))
        for key, (name, found) in declared(type(current)).items()
        if not found.secret
    }


class Described(typing.NamedTuple):
    """A setting as people read it."""

    key: str
    kind: str
    default: str | None
    """None: there is none, it must be given."""
    unit: str
    live: bool
    secret: bool
    meaning: str


def described(role: type[Any]) -> list[Described]:
    """All settings of a class, its own first, in the order in which they are declared."""
    types_by_name = typing.get_type_hints(role)
    shared = {field.name for base in role.__bases__ for field in _fields(base)}
    return [
        Described(
            known.key,
            kind_text(types_by_name[field.name]),
            None if field.default is dataclasses.MISSING else text(field.default),
            known.unit,
            known.live,
            known.secret,
            known.meaning,
        )
        for field in sorted(dataclasses.fields(role), key=lambda field: field.name in shared)
        if (known := field.metadata.get("setting")) is not None
    ]


def _fields(role: type[Any]) -> tuple[dataclasses.Field[Any], ...]:
    return dataclasses.fields(role) if dataclasses.is_dataclass(role) else ()


def kind_text(kind: Any) -> str:
    """What values a field takes, in words."""
    if isinstance(kind, types.UnionType):
        kind = next(option for option in typing.get_args(kind) if option is not type(None))
    if issubclass(kind, enum.Enum):
        return " | ".join(str(choice.value) for choice in kind)
    return _KIND_NAMES[kind]


def read_file(path: Path) -> dict[str, Any]:
    """The keys and values of a settings file: TOML by its name, else `key=value` lines."""
    try:
        content = path.read_text(encoding="utf-8")
    except OSError as error:
        raise BadSetting(f"cannot read {path}: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise BadSetting(f"{path} is not UTF-8: {error.reason} at byte {error.start}") from None
    if path.suffix == ".toml":
        try:
            return _flat(tomllib.loads(content))
        except tomllib.TOMLDecodeError as error:
            raise BadSetting(f"{path} is not TOML: {error}") from None
    return dict(parse_properties(content))


def _flat(tables: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """TOML takes a key with dots for tables within tables; here it is one key."""
    values: dict[str, Any] = {}
    for key, value in tables.items():
        if isinstance(value, dict):
            values |= _flat(value, f"{prefix}{key}.")
        else:
            values[prefix + key] = value
    return values


def parse_properties(content: str) -> dict[str, str]:
    """Java's properties, as far as RocketMQ's files use them: `key=value`, `#` and `!` comments."""
    values = {}
    for line in content.splitlines():
        stripped = line.strip()
        if stripped and stripped[0] not in "#!":
            key, *rest = _SEPARATOR.split(stripped, maxsplit=1)
            values[key] = rest[0] if rest else ""
    return values


def refuse_unknown(
    values: Mapping[str, Any], known: Collection[str], ignored: Collection[str] = ()
) -> list[str]:
    """BadSetting for a key that nobody knows; the keys that have no effect here."""
    without_effect = []
    for key in values:
        if key in known:
            continue
        if key not in ignored:
            raise BadSetting(f"unknown setting {key!r}{nearest(key, [*known, *ignored])}")
        without_effect.append(key)
    return without_effect


def nearest(key: str, known: Collection[str]) -> str:
    """A question whether a known key was meant; empty when none is near."""
    by_folded = {name.lower(): name for name in known}
    near = difflib.get_close_matches(key.lower(), by_folded, 1)
    return f"; did you mean {by_folded[near[0]]}?" if near else ""


def parse(key: str, value: Any, kind: Any) -> Any:
    """A value as its field wants it."""
    if isinstance(kind, types.UnionType):
        if value in ("", None):
            return None
        kind = next(option for option in typing.get_args(kind) if option is not type(None))
    if isinstance(kind, type) and issubclass(kind, enum.Enum):
        return _parse_enum(key, value, kind)
    if kind is bool:
        return _parse_bool(key, value)
    if kind is int:
        return _parse_int(key, value)
    if isinstance(value, (dict, list)):
        raise BadSetting(f"{key}: one value is expected, not a {_TOML_NAMES[type(value)]}")
    try:
        return kind(str(value))
    except ValueError:
        raise BadSetting(f"{key}={value}: cannot be read as {kind.__name__}") from None


def _parse_enum(key: str, value: Any, kind: type[enum.Enum]) -> enum.Enum:
    try:
        return kind(value if isinstance(value, str) else str(value))
    except ValueError:
        choices = ", ".join(str(choice.value) for choice in kind)
        raise BadSetting(f"{key}={value}: one of {choices} is expected") from None


def _parse_bool(key: str, value: Any) -> bool:
    said = str(value).lower()
    if said not in ("true", "false"):
        raise BadSetting(f"{key}={value}: true or false is expected")
    return said == "true"


def _parse_int(key: str, value: Any) -> int:
    try:
        return int(str(value))
    except ValueError:
        raise BadSetting(f"{key}={value}: a whole number is expected") from None


def text(value: Any) -> str:
    """A value as a file would have it."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value.value if isinstance(value, enum.Enum) else value)
