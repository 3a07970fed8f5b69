"""`cometmq store recover` as a user runs it."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from cometmq import __version__
from cometmq.cli.main import main
from cometmq.store.config import StoreConfig
from cometmq.store.message_store import MessageStore
from tests.store.stores import crash, fill

SMALL_INDEX = ("--max-hash-slot-num", "100", "--max-index-num", "1000")


@pytest.fixture
def crashed(tmp_path: Path) -> Path:
    config = StoreConfig(
        root=tmp_path / "store",
        commit_log_file_bytes=1 << 20,
        consume_queue_file_bytes=2000,
        index_slots=100,
        index_items=1000,
    )
    store = MessageStore(config)
    store.open()
    fill(store, 200)
    crash(store)
    return config.root


def test_it_tells_what_is_in_a_store(crashed: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["store", "recover", str(crashed), *SMALL_INDEX]) == 0
    output = capsys.readouterr().out
    assert "last stop        crash" in output
    assert "orders" in output
    assert main(["store", "recover", "-o", "json", str(crashed), *SMALL_INDEX]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts["clean"]
    assert sum(queue["max_offset"] for queue in facts["queues"]) == 200


def test_rebuild_makes_queues_and_index_anew(
    crashed: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["store", "recover", "--rebuild", "-o", "json", str(crashed), *SMALL_INDEX]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts["queues_rebuilt"]
    assert facts["index_rebuilt"]


def test_damage_is_told_and_the_exit_code_says_so(
    crashed: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    main(["store", "recover", str(crashed), *SMALL_INDEX])
    log_file = crashed / "commitlog" / ("0" * 20)
    content = bytearray(log_file.read_bytes())
    content[100] ^= 1
    log_file.write_bytes(content)
    assert main(["store", "recover", str(crashed), *SMALL_INDEX]) == 1
    assert "  0 to 207: its checksum does not match" in capsys.readouterr().out


def test_a_directory_that_is_no_store_is_left_alone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["store", "recover", str(tmp_path)]) == 2
    assert "is no store" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_a_mismatch_is_an_error_in_one_line(
    crashed: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["store", "recover", str(crashed)]) == 1
    assert capsys.readouterr().err.startswith("cometmq: ")


def test_the_command_is_installed() -> None:
    command = Path(sys.executable).with_name("cometmq")
    shown = subprocess.run([command, "--version"], capture_output=True, text=True, check=True)
    assert shown.stdout.startswith(f"cometmq {__version__} ")
