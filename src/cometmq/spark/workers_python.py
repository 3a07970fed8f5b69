"""Which Python the processes have that Spark starts on this machine.

Spark puts the archive `pyspark.zip` before everything else on their path, and an archive has no
compiled modules: each of them compiles PySpark anew, a second of CPU time before anything is done.
Where PySpark is installed anyway, a small script leaves the archives out, and NumPy's threads: a
process that plans or reads multiplies no matrices.
"""

import importlib.util
import os
import shlex
import sys
import zlib
from pathlib import Path
from typing import Final

from .shims import shim

VARIABLE: Final = "PYSPARK_PYTHON"
_SHIM: Final = """\
#!/bin/sh
# Starts Python without the archives that Spark has put on its path: it has PySpark installed.
set -f
IFS=:
kept=
for entry in $PYTHONPATH; do
    case $entry in
        {archives}/*.zip) ;;
        *) kept=${{kept:+$kept:}}$entry ;;
    esac
done
# NumPy would start a thread for each core, which spins while its process still loads.
export OPENBLAS_NUM_THREADS="${{OPENBLAS_NUM_THREADS:-1}}"
PYTHONPATH=$kept exec {python} "$@"
"""


def choose_python(*, local: bool) -> None:
    """Have Spark start this Python, unless the user has chosen another one. The script is for
    processes of this machine alone."""
    quick = _quick_python()
    if os.environ.get(VARIABLE, sys.executable) in (sys.executable, quick):
        os.environ[VARIABLE] = quick if local else sys.executable


def _quick_python() -> str:
    found = importlib.util.find_spec("pyspark")
    if found is None or found.origin is None:
        return sys.executable
    archives = Path(found.origin).parent / "python" / "lib"
    script = _SHIM.format(archives=shlex.quote(str(archives)), python=shlex.quote(sys.executable))
    # Of its own for each environment: they must not take each other's.
    quick = shim(f"python-shim/{zlib.crc32(script.encode()):08x}/python", script)
    # A home may be mounted so that nothing in it can be executed.
    return str(quick) if os.access(quick, os.X_OK) else sys.executable
