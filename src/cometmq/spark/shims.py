"""Small scripts that start a program a little differently than Spark would, in the user's cache."""

import contextlib
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path


def shim(name: str, script: str) -> Path:
    """An executable script at this relative path, made anew if it is another one."""
    for parent in _cache_directories():
        with contextlib.suppress(OSError):
            return _written(parent / name, script)
    return _written(Path(tempfile.mkdtemp(prefix="cometmq-")) / name, script)


def _cache_directories() -> Iterator[Path]:
    yield Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "cometmq"


def _written(path: Path, script: str) -> Path:
    if path.is_file() and path.read_text() == script:
        return path
    path.parent.mkdir(parents=True, exist_ok=True)
    # Whole or not at all: another process may be starting its program here.
    with tempfile.NamedTemporaryFile("w", dir=path.parent, delete=False) as file:
        file.write(script)
    made = Path(file.name)
    made.chmod(0o755)
    os.replace(made, path)
    return path
