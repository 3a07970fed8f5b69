"""Settings as brokers and NameServers show and take them: lines of `key=value`."""

import re
from collections.abc import Mapping

from cometmq.protocol.command import Command
from cometmq.settings import parse_properties

from ..errors import IllegalArgument

_KEY = re.compile(r"[A-Za-z0-9._-]+")
# Java reads these lines as Latin-1 and with escapes: all else would arrive as something else.
_VALUE = re.compile(r"(?:[!-\[\]-~](?:[ -\[\]-~]*[!-\[\]-~])?)?")


def settings_in(answer: Command) -> dict[str, str]:
    return parse_properties(answer.body.decode(errors="replace"))


def settings_text(changes: Mapping[str, object]) -> bytes:
    values = {
        key: str(value).lower() if isinstance(value, bool) else str(value)
        for key, value in changes.items()
    }
    if not values:
        raise IllegalArgument("no settings to change were given")
    for key, value in values.items():
        if not _KEY.fullmatch(key) or not _VALUE.fullmatch(value):
            raise IllegalArgument(
                f"{key}={value}: letters, digits and . _ - make a key; printable ASCII without "
                "backslashes, and no blanks around it, a value"
            )
    return "".join(f"{key}={value}\n" for key, value in values.items()).encode()
