"""A table that is kept in a JSON file of the store's `config` directory.

Changes that an operator asked for are saved before they are answered; those that come with
traffic are saved by the next round, so that a thousand new topics are not a thousand files.
"""

from typing import Any

import msgspec

from cometmq.store.config_file import ConfigFile
from cometmq.store.errors import StoreMismatch


class Persistent:
    def __init__(self, file: ConfigFile | None) -> None:
        """Without a file the table lives in memory only."""
        self._file = file
        self._changed = False

    def content(self) -> Any:
        """What goes into the file."""
        raise NotImplementedError

    def touch(self) -> None:
        self._changed = True

    def save(self) -> None:
        if self._changed and self._file is not None:
            self._file.save(msgspec.to_builtins(self.content(), str_keys=True))
        self._changed = False

    def load_as(self, kind: Any) -> Any:
        """What the file has, as that type; None when there is no file."""
        if self._file is None:
            return None
        try:
            content = self._file.load()
            return None if content is None else msgspec.convert(content, kind, strict=False)
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            raise StoreMismatch(
                f"{self._file.path} cannot be read: {error}; put back a copy that can, or remove it"
            ) from error
