"""A JSON file of the `config` directory, with the previous version beside it as `.bak`.

Reads what RocketMQ writes: fastjson leaves integer keys of maps unquoted.
"""

import logging
from pathlib import Path
from typing import Any

import msgspec

from cometmq.protocol.fastjson import parse_json

from .disk import Disk

log = logging.getLogger(__name__)


class ConfigFile:
    def __init__(self, path: Path, disk: Disk | None = None) -> None:
        self.path = path
        self._disk = disk or Disk()

    @property
    def backup(self) -> Path:
        return self.path.with_name(self.path.name + ".bak")

    def load(self) -> Any:
        """The content, from the backup when the file itself cannot be read; None when there is
        neither. A file that exists but cannot be read, with no good backup, is an error."""
        failure: Exception | None = None
        for path in (self.path, self.backup):
            try:
                content = path.read_bytes()
                if content.strip():
                    return parse_json(content)
            except FileNotFoundError:
                continue
            except msgspec.DecodeError as error:
                log.error("%s cannot be read: %s", path, error)
                failure = error
        if failure is not None:
            raise failure
        return None

    def save(self, content: Any) -> None:
        encoded = msgspec.json.format(msgspec.json.encode(content), indent=2)
        self._disk.make_directory(self.path.parent)
        if self.path.exists():
            self._disk.write_whole(self.backup, self.path.read_bytes())
        self._disk.write_whole(self.path, encoded)
