"""Whether what we would publish works where nobody has the repository: builds an sdist, a wheel of
it with a C compiler and one without, installs each into an environment of its own, and sends a
message through a server that was started from there. Slow, since it installs; needs an index.
`--plain` leaves out the wheel with a compiler.
"""

import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import venv
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[1]
SOURCES: Final = ("src", "pyproject.toml", "setup.py", "README.md", "LICENSE", "MANIFEST.in")
STEP_S: Final = 300.0
BUILD: Final = "from setuptools import build_meta; print(build_meta.build_sdist('dist'))"
MESSAGE: Final = """
import asyncio, signal, subprocess, sys
from cometmq.client import ConsumeFrom, Message, Producer, PushConsumer

async def main(namesrv):
    got = asyncio.Queue()
    async with Producer(namesrv, group="makers") as producer, PushConsumer(
        namesrv, group="readers", topics={"orders": "*"}, handler=got.put,
        consume_from=ConsumeFrom.FIRST,
    ):
        await producer.send(Message("orders", b"one coffee"))
        message = await asyncio.wait_for(got.get(), 30)
        assert message.body == b"one coffee", message

command = [sys.argv[1], "standalone", "--data-dir", "data", "--namesrv-port", "0",
           "--broker-port", "0", "--set", "mappedFileSizeCommitLog=1048576"]
server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
try:
    asyncio.run(main(server.stdout.readline().split("namesrv=")[1].split()[0]))
finally:
    server.send_signal(signal.SIGTERM)
    assert server.wait(30) == 0
"""


class PackageFailed(Exception):
    """A step did not work; the text has what it said."""


def run(*command: str | Path, cwd: Path, **environment: str) -> str:
    kept = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "COMETMQ_PURE")}
    done = subprocess.run(
        [str(part) for part in command],
        cwd=cwd, env={**kept, **environment}, timeout=STEP_S, text=True, check=False,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip
    if done.returncode:
        raise PackageFailed(f"{' '.join(map(str, command))}\n{done.stdout}")
    return done.stdout


def environment(place: Path) -> Path:
    """A new environment; its directory of programs."""
    venv.create(place, with_pip=True)
    return place / "bin"


def sdist(work: Path, tools: Path) -> Path:
    """Built from a copy, so that nothing that lies about in the repository gets into it."""
    copy = work / "source"
    copy.mkdir()
    for name in SOURCES:
        found = ROOT / name
        if found.is_dir():
            ignored = shutil.ignore_patterns("__pycache__", "*.so", "*.egg-info")
            shutil.copytree(found, copy / name, ignore=ignored)
        elif found.exists():
            shutil.copy(found, copy / name)
    run(tools / "python", "-c", BUILD, cwd=copy)
    (built,) = (copy / "dist").glob("*.tar.gz")
    return built


def contents(archive: Path) -> set[str]:
    with tarfile.open(archive) as opened:
        return {name.partition("/")[2] for name in opened.getnames()}


def check_wheel(work: Path, tools: Path, archive: Path, *, compiled: bool) -> None:
    """Build a wheel of the sdist, install it, and use it from an empty directory."""
    kind = "compiled" if compiled else "plain"
    place = work / kind
    place.mkdir()
    compiler = {} if compiled else {"CC": "/nonexistent/cc", "LDSHARED": "/nonexistent/cc"}
    run(
        tools / "pip", "wheel", "-q", "--no-deps", "--no-build-isolation", "-w", place, archive,
        cwd=place, **compiler,
    )  # fmt: skip
    (wheel,) = place.glob("*.whl")
    programs = environment(place / "venv")
    run(programs / "pip", "install", "-q", wheel, cwd=place)
    outside = place / "outside"
    outside.mkdir()
    said = run(programs / "cometmq", "--version", cwd=outside)
    expected = "compiled codec" if compiled else "plain Python codec"
    if expected not in said:
        raise PackageFailed(f"{wheel.name}: {expected} was expected, not {said}")
    run(programs / "python", "-c", MESSAGE, programs / "cometmq", cwd=outside)


def main() -> int:
    with tempfile.TemporaryDirectory(prefix="cometmq-package-") as directory:
        work = Path(directory)
        tools = environment(work / "tools")
        run(tools / "pip", "install", "-q", "setuptools>=77", "cython>=3.1", cwd=work)
        archive = sdist(work, tools)
        missing = {"LICENSE", "src/cometmq/protocol/_compiled.pyx", "setup.py"} - contents(archive)
        if missing:
            raise PackageFailed(f"{archive.name} lacks {', '.join(sorted(missing))}")
        compiles = shutil.which("cc") is not None and "--plain" not in sys.argv[1:]
        for compiled in [False, True] if compiles else [False]:
            check_wheel(work, tools, archive, compiled=compiled)
            sys.stdout.write(f"ok {'with' if compiled else 'without'} a compiler\n")
            sys.stdout.flush()
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except PackageFailed as failure:
        sys.stderr.write(f"{failure}\n")
        sys.exit(1)
