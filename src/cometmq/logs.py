"""What servers say in their logs: as text or as JSON lines, and from which level on.

Levels are one word for everything, and more for parts of it: `WARNING,cometmq.store=DEBUG`. They
may change while a server runs; the form may not.
"""

import enum
import logging
import time
from collections.abc import Mapping
from typing import Final

import msgspec

_LEVELS: Final[Mapping[str, int]] = {
    "DEBUG": logging.DEBUG,
    "INFO": logging.INFO,
    "WARN": logging.WARNING,
    "WARNING": logging.WARNING,
    "ERROR": logging.ERROR,
}
_TEXT: Final = "%(asctime)s %(levelname)s %(name)s: %(message)s"
_named: set[str] = set()
"""Loggers that have a level of their own by our doing."""


class LogFormat(enum.Enum):
    TEXT = "text"
    JSON = "json"


def parse_levels(said: str) -> dict[str, int]:
    """Logger → level; the empty name is for all others. ValueError if it cannot be read."""
    levels = {}
    for part in said.split(","):
        name, _, level = part.rpartition("=")
        if level.strip().upper() not in _LEVELS:
            raise ValueError(f"{level.strip()!r} is none of {', '.join(_LEVELS)}")
        levels[name.strip()] = _LEVELS[level.strip().upper()]
    if "" not in levels:
        raise ValueError("a level for all comes first, like WARNING,cometmq.store=DEBUG")
    return levels


def set_up(form: LogFormat, levels: str, node: str) -> None:
    """Log to stderr from now on. `node` is who speaks: JSON lines of many go to one place."""
    logging.basicConfig()
    formatter = JsonLines(node) if form is LogFormat.JSON else logging.Formatter(_TEXT)
    for handler in logging.getLogger().handlers:
        # Only the plain one: whoever put others there, like a test, knows what they should do.
        if type(handler) is logging.StreamHandler:
            handler.setFormatter(formatter)
    set_levels(levels)


def set_levels(said: str) -> None:
    levels = parse_levels(said)
    for name in _named - levels.keys():
        logging.getLogger(name).setLevel(logging.NOTSET)
    _named.clear()
    for name, level in levels.items():
        logging.getLogger(name).setLevel(level)
        if name:
            _named.add(name)


class JsonLines(logging.Formatter):
    """One object a line: time, level, node, logger, message, and the trace of an exception."""

    def __init__(self, node: str) -> None:
        super().__init__()
        self._node = node

    def format(self, record: logging.LogRecord) -> str:
        seconds = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
        line = {
            "time": f"{seconds}.{int(record.msecs):03d}Z",
            "level": record.levelname,
            "node": self._node,
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        # Messages may quote what a peer sent, or a file's name: not all of that is UTF-8.
        return msgspec.json.encode(
            {key: said.encode(errors="replace").decode() for key, said in line.items()}
        ).decode()
