"""A user's own PySpark script or prompt, with Java, the workers' Python and our formats set.

The script makes its session as it likes, by `SparkSession.builder` or by `cometmq.spark.session()`;
what was said on the command line reaches it the way that `spark-submit` would bring it. Scripts run
in this process, which is the driver.
"""

import functools
import os
import runpy
import shlex
import sys
import traceback
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from .errors import BadOption, SparkError
from .session import (
    LOCAL,
    is_connect_address,
    prepare_environment,
    register,
    spark_session_class,
    with_defaults,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PY_FILES: Final = "spark.submit.pyFiles"
_END_OF_ARGUMENTS: Final = "pyspark-shell"


def settings_of(texts: Iterable[str]) -> dict[str, str]:
    """NAME=VALUE, each a setting of Spark."""
    settings = {}
    for text in texts:
        name, is_given, value = text.partition("=")
        if not (name.startswith("spark.") and is_given):
            raise BadOption(f"--conf {text}: spark.some.name=value is expected")
        settings[name] = value
    return settings


def environment_of(master: str, settings: Mapping[str, str]) -> dict[str, str]:
    """What tells a session made later, whoever makes it, its master and its settings."""
    if is_connect_address(master):
        if settings:
            raise BadOption(
                "--conf: a Spark Connect server has settings of its own; set them there"
            )
        return {"SPARK_REMOTE": master}
    arguments = ["--master", master]
    for name, value in settings.items():
        arguments += ["--conf", f"{name}={value}"]
    return {"PYSPARK_SUBMIT_ARGS": shlex.join([*arguments, _END_OF_ARGUMENTS])}


def prepare(master: str = LOCAL, settings: Mapping[str, str] | None = None) -> None:
    """From now on, sessions of this process are as told."""
    settings = settings or {}
    os.environ.update(environment_of(master, settings))
    if not is_connect_address(master):
        prepare_environment(settings, master)


def run_script(script: Path, arguments: Sequence[str]) -> int:
    """Run it as the main program, and have every session that it makes know our formats; its exit
    code. What it fails with is told as Python would."""
    if not script.is_file():
        raise BadOption(f"there is no script {script}")
    _have_sessions_know_formats()
    sys.argv = [str(script), *arguments]
    sys.path.insert(0, str(script.resolve().parent))
    try:
        runpy.run_path(str(script), run_name="__main__")
    except SparkError as error:
        sys.stderr.write(f"{script}: {error}\n")
        return 1
    except Exception as error:  # noqa: BLE001 - whatever a user's program raises
        sys.stderr.write(_trace_in(script, error))
        return 1
    return 0


def _trace_in(script: Path, error: Exception) -> str:
    """The trace from the script on, without those who called it."""
    frames = error.__traceback__
    while frames is not None and frames.tb_frame.f_code.co_filename != str(script):
        frames = frames.tb_next
    return "".join(traceback.format_exception(error.with_traceback(frames)))


def _have_sessions_know_formats() -> None:
    builders = spark_session_class().Builder
    made = builders.getOrCreate

    @functools.wraps(made)
    def with_formats(builder: "SparkSession.Builder") -> "SparkSession":
        return register(made(with_defaults(builder)))

    setattr(builders, made.__name__, with_formats)
