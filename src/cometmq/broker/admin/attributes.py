"""Attributes of topics and groups, and changes to them. Pure.

A change is a map whose keys say by their sign what to do: `+key` sets a value, `-key` removes it.
Requests for one topic carry it as text, `+key=value,-key`. Nothing is taken over of a change that
is wrong in any part.
"""

from collections.abc import Callable, Mapping
from typing import NamedTuple

MIXED = "MIXED"
_MESSAGE_TYPES = ("NORMAL", "FIFO", "DELAY", "TRANSACTION", MIXED, "UNSPECIFIED")
_LACKING_TYPES = ("PRIORITY", "LITE")
_RESERVE_MAX = 2**63 - 1


class Attribute(NamedTuple):
    check: Callable[[str], None]
    """ValueError for a value that it cannot have."""
    changeable: bool


def parse_changes(text: str) -> dict[str, str]:
    """`+key=value,-key` as a map. ValueError when it is something else."""
    changes: dict[str, str] = {}
    for word in filter(None, (word.strip() for word in text.split(","))):
        key, equals, value = word.partition("=")
        if not key.startswith("+" if equals else "-"):
            raise ValueError(f"attributes {text!r}: {word!r} is neither +key=value nor -key")
        if key in changes:
            raise ValueError(f"attributes {text!r}: {key} stands there twice")
        changes[key] = value
    return changes


def changed_attributes(
    current: Mapping[str, str] | None, changes: Mapping[str, str], known: Mapping[str, Attribute]
) -> dict[str, str]:
    """The attributes after a change; `current` is None for something that is created by it."""
    attributes = dict(current or {})
    for signed, value in changes.items():
        sign, key = signed[:1], signed[1:]
        attribute = known.get(key)
        if sign not in ("+", "-") or not key:
            raise ValueError(f"attribute {signed!r}: +key or -key is expected")
        if attribute is None:
            raise ValueError(f"unsupported key: {key}; {', '.join(known) or 'none'} can be set")
        if f"-{key}" in changes and f"+{key}" in changes:
            raise ValueError(f"attribute {key} is both set and removed")
        if sign == "+":
            attribute.check(value)
        _check_change(key, attribute, created=current is None, before=attributes.get(key))
        if sign == "+":
            attributes[key] = value
        elif attributes.pop(key, None) is None:
            raise ValueError(f"attribute {key} cannot be removed: it is not set")
    return attributes


def _check_change(key: str, attribute: Attribute, *, created: bool, before: str | None) -> None:
    if not created and not attribute.changeable:
        raise ValueError(f"attribute {key}={before or ''} cannot be changed later")


def _check_message_type(value: str) -> None:
    if value in _LACKING_TYPES:
        raise ValueError(f"message.type={value}: this version has no such topics")
    if value not in _MESSAGE_TYPES:
        raise ValueError(
            f"message.type={value}: value is not in set: [{', '.join(_MESSAGE_TYPES)}]"
        )


def _only(key: str, allowed: str, lacking: str) -> Callable[[str], None]:
    def check(value: str) -> None:
        if value == lacking:
            raise ValueError(f"{key}={value}: this version has {allowed} only")
        if value != allowed:
            raise ValueError(f"{key}={value}: value is not in set: [{allowed}, {lacking}]")

    return check


def _check_reserve_time(value: str) -> None:
    number = value.removeprefix("-")
    if not number.isdecimal() or not -1 <= int(value) <= _RESERVE_MAX:
        raise ValueError(f"reserve.time={value}: a number from -1 on is expected")


TOPIC_ATTRIBUTES = {
    "message.type": Attribute(_check_message_type, changeable=True),
    "queue.type": Attribute(_only("queue.type", "SimpleCQ", "BatchCQ"), changeable=False),
    "cleanup.policy": Attribute(_only("cleanup.policy", "DELETE", "COMPACTION"), changeable=False),
    "reserve.time": Attribute(_check_reserve_time, changeable=True),
}
GROUP_ATTRIBUTES: dict[str, Attribute] = {}
