"""The image is built from what there is, and starts what there is. It is not built here: that needs
a container engine."""

import json
import re
import tomllib
from fnmatch import fnmatch
from pathlib import Path

from cometmq.cli.commands import build_parser, chosen_in

ROOT = Path(__file__).parents[2]
LINES = (ROOT / "deploy" / "container" / "Containerfile").read_text().replace("\\\n", " ")


def arguments(instruction: str) -> list[str]:
    return re.findall(rf"^{instruction} (.*)$", LINES, re.MULTILINE)


def test_everything_that_is_copied_exists_and_is_not_ignored() -> None:
    kept = [
        line.removeprefix("!")
        for line in (ROOT / ".containerignore").read_text().splitlines()
        if line.startswith("!")
    ]
    copied = [source for line in arguments("COPY") for source in line.split()[:-1]]
    assert {"pyproject.toml", "setup.py", "README.md", "LICENSE", "src"} <= set(copied)
    for source in copied:
        assert (ROOT / source).exists(), source
        assert any(fnmatch(source, pattern) for pattern in kept), source


def test_it_starts_the_command_and_exposes_its_ports() -> None:
    scripts = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"]
    assert json.loads(arguments("ENTRYPOINT")[0])[0] in scripts
    command = json.loads(arguments("CMD")[0])
    options = build_parser(chosen_in(command)).parse_args(command)
    exposed = set(map(int, arguments("EXPOSE")[0].split()))
    wanted = {options.namesrv_port, options.broker_port, options.metrics_port}
    assert wanted <= exposed
    assert str(options.data_dir) in arguments("VOLUME")


def test_it_does_not_run_as_root() -> None:
    assert arguments("USER") == ["10001"]
