"""Logs: levels that change, lines that programs read."""

import logging
import subprocess
import sys
from collections.abc import Iterator

import msgspec
import pytest

from cometmq.logs import JsonLines, parse_levels, set_levels

PART = "cometmq.test_logs.part"


@pytest.fixture(autouse=True)
def _levels_as_before() -> Iterator[None]:
    before = logging.getLogger().level
    yield
    set_levels("WARNING")
    logging.getLogger().setLevel(before)


def test_levels_are_one_word_and_more_for_parts() -> None:
    said = "warn, cometmq.store = DEBUG"
    assert parse_levels(said) == {"": logging.WARNING, "cometmq.store": logging.DEBUG}


@pytest.mark.parametrize("said", ["", "LOUD", "cometmq.store=DEBUG", "INFO,cometmq.store="])
def test_levels_that_mean_nothing_are_errors(said: str) -> None:
    with pytest.raises(ValueError, match=r"is none of|for all comes first"):
        parse_levels(said)


def test_a_part_is_as_loud_as_the_rest_when_it_is_not_named_any_more() -> None:
    set_levels(f"ERROR,{PART}=DEBUG")
    assert logging.getLogger(PART).isEnabledFor(logging.DEBUG)
    set_levels("ERROR")
    assert not logging.getLogger(PART).isEnabledFor(logging.WARNING)
    assert logging.getLogger(PART).isEnabledFor(logging.ERROR)


def test_a_json_line_has_time_level_node_logger_and_message() -> None:
    record = logging.LogRecord("cometmq.x", logging.INFO, "f", 1, "sent %d\n\udcff", (3,), None)
    record.created, record.msecs = 1_700_000_000.25, 250.0
    assert msgspec.json.decode(JsonLines("broker-a").format(record)) == {
        "time": "2023-11-14T22:13:20.250Z",
        "level": "INFO",
        "node": "broker-a",
        "logger": "cometmq.x",
        "message": "sent 3\n?",
    }


PROGRAM = """
import logging
from cometmq.logs import LogFormat, set_up
set_up(LogFormat.JSON, "INFO", "broker-a")
try:
    raise OSError("no disk")
except OSError:
    logging.getLogger("cometmq.x").exception("it failed")
logging.getLogger("cometmq.x").debug("not told")
"""


def test_an_exception_stays_in_its_line() -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True
    )
    (line,) = done.stderr.splitlines()
    said = msgspec.json.decode(line)
    assert said["message"] == "it failed"
    assert said["exception"].endswith("OSError: no disk")
