"""What users import: every name, at no cost, with types, and never a server behind their back."""

import subprocess
import sys
from pathlib import Path

import pytest

import cometmq.client
from cometmq.client import errors, names

SERVERS = ("cometmq.broker", "cometmq.store", "cometmq.namesrv", "cometmq.cli.")
USER = """
from concurrent.futures import Future

from cometmq.client import (
    Admin, ByMachineRoom, Later, Message, Producer, PushConsumer, ReceivedMessage, SendResult, Sql,
    by_hash,
)
from cometmq.client.blocking import Producer as BlockingProducer


def handler(message: ReceivedMessage) -> Later | None:
    return Later(3) if message.tags == "bad" else None


async def main() -> None:
    async with Producer("127.0.0.1:9876", group="g", linger_s=0.01, retries=1) as producer:
        sent: SendResult = await producer.send(Message("t", b"1"), selector=by_hash, key="k")
    async with PushConsumer(
        "127.0.0.1:9876", group="g", topics={"t": Sql("a > 1")}, handler=handler,
        allocation=ByMachineRoom({"room"}),
    ):
        pass
    async with Admin("127.0.0.1:9876") as admin:
        lag: int = (await admin.groups.progress("g")).lag


def blocking() -> None:
    with BlockingProducer("127.0.0.1:9876", group="g") as producer:
        sent: Future[SendResult] = producer.send_nowait(Message("t", b"1"))
"""


def in_a_fresh_python(script: str) -> str:
    result = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=False
    )
    assert result.returncode == 0, result.stderr
    return result.stdout


def test_importing_the_client_loads_nothing_but_itself() -> None:
    script = "import sys, cometmq.client; print(*(n for n in sys.modules if 'cometmq' in n))"
    loaded = in_a_fresh_python(script).split()
    assert set(loaded) - {"cometmq", "cometmq.client"} == set()


@pytest.mark.parametrize("name", ["Producer", "PushConsumer", "PullConsumer", "Admin", "errors"])
def test_no_client_loads_a_server(name: str) -> None:
    script = f"import sys; from cometmq.client import {name}, blocking; print(*sys.modules)"
    loaded = in_a_fresh_python(script).split()
    assert "cometmq.client.names" in loaded
    assert [module for module in loaded if module.startswith(SERVERS)] == []


def test_every_error_has_its_name_here() -> None:
    kinds = {
        name
        for name, kind in vars(errors).items()
        if isinstance(kind, type) and issubclass(kind, errors.ClientError)
    }
    assert len(kinds) > 35
    assert kinds - set(names.__all__) == set()


def test_names_are_the_things_themselves_and_others_are_told() -> None:
    assert cometmq.client.TopicNotFound is errors.TopicNotFound
    for name in names.__all__:
        assert getattr(cometmq.client, name) is getattr(names, name)
    with pytest.raises(AttributeError, match=r"'cometmq\.client' has no attribute 'Nothing'"):
        _ = cometmq.client.Nothing


@pytest.mark.timeout(240)
def test_a_users_program_is_checked_strictly(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(USER)
    checked = mypy(program)
    assert checked.returncode == 0, checked.stdout
    program.write_text(USER.replace("group=", "grp="))
    assert 'Unexpected keyword argument "grp"' in mypy(program).stdout


def mypy(program: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", program.name],
        cwd=program.parent,
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
