"""Pictures of the README show what the program prints, and can be taken anew."""

import html
import re
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest
from tools import pictures
from tools.report_chart import chart
from tools.terminal import Exchange, picture

from cometmq.spark.pipelines.report_figures import Report, Series, Timeline
from cometmq.spark.pipelines.report_page import as_page

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()
BYTES_MAX = 60_000
FREE_PORTS = "cometmq standalone --namesrv-port 0 --broker-port 0"
ID = re.compile(r"\b[0-9A-F]{32}\b")
SVG = "{http://www.w3.org/2000/svg}"


def texts(path: Path, kind: str | None = None) -> list[str]:
    """What stands in it, from top to bottom; only what was typed, with `kind`."""
    found = ET.fromstring(path.read_text()).iter(f"{SVG}text")
    return [
        (text.text or "").replace("\u00a0", " ")
        for text in found
        if kind is None or text.get("class") == kind
    ]


def typed(path: Path) -> list[str]:
    return [ID.sub("ID", command) for command in texts(path, "typed")]


@pytest.mark.parametrize("path", sorted(pictures.DIRECTORY.iterdir()), ids=lambda path: path.name)
def test_a_picture_is_small_and_tells_nothing_of_where_it_was_taken(path: Path) -> None:
    text = html.unescape(path.read_text())
    assert len(text) < BYTES_MAX
    assert not re.search(r"/(home|root|tmp|work|Users)\b", text)


@pytest.mark.parametrize("name", pictures.SCENES)
def test_a_picture_shows_its_commands(name: str) -> None:
    assert typed(pictures.DIRECTORY / f"{name}.svg") == list(pictures.SCENES[name].commands)


def test_the_readme_shows_all_pictures_and_says_what_is_on_them() -> None:
    shown = dict(re.findall(r"!\[([^\]]*)\]\(docs/pictures/([^)]*)\)", README))
    assert sorted(shown.values()) == sorted(path.name for path in pictures.DIRECTORY.iterdir())
    assert all(len(told) > 20 for told in shown), "for those who do not see it"


def test_the_first_commands_stand_in_the_readme_to_be_copied() -> None:
    assert "```\n" + "\n".join(pictures.SCENES["first"].commands) + "\n```" in README


@pytest.mark.timeout(180)
def test_pictures_can_be_taken_anew(tmp_path: Path) -> None:
    pictures.take(tmp_path, FREE_PORTS, with_report=False)
    for name, scene in pictures.SCENES.items():
        assert typed(tmp_path / f"{name}.svg") == list(scene.commands)
    assert any(line.endswith("  one coffee") for line in texts(tmp_path / "first.svg"))
    assert "lag      3000" in texts(tmp_path / "lag.svg")
    assert "exit code 1" in texts(tmp_path / "doctor.svg")


def test_a_cluster_that_does_not_start_is_told(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match="it did not start"):
        pictures.take(tmp_path, "cometmq standalone --broker-port 99999")


def test_the_chart_of_a_report_is_a_picture_of_its_own(tmp_path: Path) -> None:
    series = [Series("orders", [3, 0, 5], [1, 1, 1]), Series("a&b", [1, 1, 1], [1, 1, 1])]
    timeline = Timeline(0, 1000, 3, series, [None] * 3, [None] * 3)
    page = as_page(Report("here", 1, None, None, [], timeline, [], [], []))
    path = tmp_path / "report.svg"
    path.write_text(chart(page))
    assert texts(path)[0] == "Messages per second"
    assert texts(path)[-2:] == ["orders", "a&b"]
    bars = re.findall(r'<rect class="s(\d)" x="[\d.]+" y=', path.read_text())
    assert sorted(bars) == ["0", "0", "1", "1", "1"], "a bar of nothing is not drawn"
    assert "var(" not in path.read_text()
    assert "fill:none" not in path.read_text(), "bars are full"


def test_a_page_without_a_chart_is_told() -> None:
    with pytest.raises(ValueError, match="there was no message"):
        chart(as_page(Report("here", 1, None, None, [], None, [], [], [])))


def test_what_is_drawn_is_escaped_and_long_lines_go_on_below(tmp_path: Path) -> None:
    path = tmp_path / "a.svg"
    path.write_text(picture("a < b", [Exchange("x > y", "one & two\n\n" + "long " * 40)]))
    assert texts(path) == ["a < b", "$", "x > y", "one & two", ("long " * 24).rstrip(),
                           ("long " * 16).rstrip()]  # fmt: skip
