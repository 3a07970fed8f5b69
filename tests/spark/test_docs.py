"""The guide names every option and column there is, and none that is not."""

import re
from pathlib import Path

import pytest

from cometmq.spark.log import options as log_options
from cometmq.spark.schema import COLUMNS, ON_REQUEST
from cometmq.spark.sink import columns as sink_columns
from cometmq.spark.sink import options as sink_options
from cometmq.spark.topic import options as topic_options

GUARANTEES = [guarantee.value for guarantee in sink_options.Guarantee]
GUIDE = (Path(__file__).parents[2] / "docs" / "spark.md").read_text()


def section(title: str) -> str:
    """A part of the guide with all below it."""
    found = re.search(rf"^## {title}\n(.*?)(?=^## |\Z)", GUIDE, re.DOTALL | re.MULTILINE)
    assert found, f"no part is called {title}"
    return found[1]


def first_cells(text: str) -> set[str]:
    """The names that tables of options begin their rows with."""
    rows = re.findall(r"^\|((?: ?`[^`|]+`,?)+) *\|", text, re.MULTILINE)
    return {name for row in rows for name in re.findall(r"`([^`]+)`", row)}


@pytest.mark.parametrize(
    ("title", "known"),
    [
        ("Read a topic", topic_options.KNOWN),
        ("Read log files", log_options.KNOWN),
        ("Write to a topic", (*sink_options.KNOWN, *sink_columns.TYPES, *GUARANTEES)),
    ],
)
def test_the_tables_have_all_names_and_no_other(title: str, known: tuple[str, ...]) -> None:
    elsewhere = {"columns", "includeProperties"}
    assert first_cells(section(title)) | elsewhere == set(known) | elsewhere


def test_every_column_is_told() -> None:
    text = section("Columns")
    assert [name for name in (*COLUMNS, *ON_REQUEST) if f"`{name}`" not in text] == []
