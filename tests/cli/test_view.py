"""Tables, lines, sizes and times as people see them; values and spans as people write them."""

import argparse
import re
import time

import pytest

from cometmq.cli.arguments import count, moment_ms, pair, positive, span_s
from cometmq.cli.bench import percentiles
from cometmq.cli.letters import brief
from cometmq.cli.progress import line
from cometmq.cli.view import Table, cell, lines_of, moment, printable, size, table_text, width_of


def test_numbers_stand_right_and_texts_left() -> None:
    rows = [{"topic": "a", "lag": 5}, {"topic": "longer", "lag": 12345}]
    assert table_text(Table(("topic", "lag"), rows, "heading")) == (
        "heading\nTOPIC     LAG\na           5\nlonger  12345\n"
    )
    assert table_text(Table(("topic", "lag"), [])) == "TOPIC  LAG\n"


def test_chinese_takes_two_columns() -> None:
    assert width_of("茶a") == 3
    rows = [{"body": "茶", "n": 1}, {"body": "ab", "n": 2}]
    assert table_text(Table(("body", "n"), rows)).splitlines()[1:] == ["茶    1", "ab    2"]


@pytest.mark.parametrize(
    ("name", "value", "shown"),
    [
        ("any", None, "-"),
        ("any", "", "-"),
        ("any", True, "yes"),
        ("any", 1.25, "1.2"),
        ("any", [], "-"),
        ("any", ["a", "b"], "a, b"),
        ("any", {"0": "h:1"}, "0=h:1"),
        ("any", "a\x1b[2J\n", "a\\x1b[2J\\n"),
        ("disk_ratio", 0.256, "25.6%"),
        ("log_bytes", 1536, "1.5 KiB"),
        ("born_at", 0, "-"),
        ("born_at", 1_700_000_000_123, "2023-11-14 22:13:20.123"),
    ],
)
def test_the_name_of_a_field_says_how_it_is_shown(name: str, value: object, shown: str) -> None:
    assert cell(name, value) == shown


def test_fields_stand_a_line_each() -> None:
    assert lines_of({"in_tps": 1.0, "boot_at": 0}, "send") == "send\nin tps   1.0\nboot     -\n"


def test_sizes_and_odd_times() -> None:
    assert [size(n) for n in (0, 1023, 1024, 5 * 1024**4)] == [
        "0 B",
        "1023 B",
        "1.0 KiB",
        "5.0 TiB",
    ]
    assert size(5000 * 1024**4) == "5000.0 TiB"
    assert moment(10**18) == str(10**18)


def test_what_cannot_be_printed_is_escaped() -> None:
    assert printable("plain ü 茶") == "plain ü 茶"
    assert printable("\x00\u202e\udc80") == "\\x00\\u202e\\udc80"
    assert brief(b"x" * 100) == "x" * 79 + "…"
    assert brief(b"\xff") == "/w=="


def test_moments_are_times_or_how_long_ago() -> None:
    assert moment_ms("2026-11-16T08:00") == moment_ms("2026-11-16T09:00+01:00") == 1794816000000
    assert abs(moment_ms("2h") - (time.time() - 7200) * 1000) < 5000
    with pytest.raises(argparse.ArgumentTypeError, match="'soon' is no time: 2026-11-16"):
        moment_ms("soon")


def test_spans_counts_and_pairs_are_checked() -> None:
    assert [span_s(text) for text in ("500ms", "2", "1.5m", "1d")] == [0.5, 2.0, 90.0, 86400.0]
    assert (count("7"), positive("0.5"), pair("a=b=c")) == (7, 0.5, ("a", "b=c"))
    for check, text in ((span_s, "-1s"), (count, "0"), (positive, "nan"), (pair, "a")):
        with pytest.raises(argparse.ArgumentTypeError, match=re.escape(f"'{text}'")):
            check(text)


def test_progress_tells_rate_and_rest() -> None:
    assert line("sent", 50, 200, 5.0) == (
        "[######..................] 50 sent, 10/s of 200, 15 s left"
    )
    assert line("read", 1200, None, 2.0) == "1,200 read, 600/s"


def test_percentiles_are_of_all() -> None:
    assert percentiles([]) == {}
    told = percentiles([n / 1000 for n in range(1, 101)])
    assert told == {"p50": 51.0, "p95": 96.0, "p99": 100.0, "max": 100.0}
