"""The file with what a member must find again: `raft.json` in the store's directory, with epoch,
vote and epoch table. And whose they are: an id must never speak with another's memory."""

from pathlib import Path
from typing import Final

import msgspec

from cometmq.raft.hard_state import HardState
from cometmq.store.disk import Disk
from cometmq.store.errors import StoreMismatch

NAME: Final = "raft.json"


class _Saved(msgspec.Struct, frozen=True):
    group: str
    member: str
    state: HardState


class StateFile:
    def __init__(self, root: Path, group: str, member: str, disk: Disk) -> None:
        self.path = root / NAME
        self._group = group
        self._member = member
        self._disk = disk

    def load(self) -> HardState | None:
        """None where there is none. StoreMismatch when it is another member's."""
        if not self.path.exists():
            return None
        try:
            saved = msgspec.json.decode(self.path.read_bytes(), type=_Saved)
        except msgspec.MsgspecError as error:
            raise StoreMismatch(
                f"{self.path} cannot be read: {error}. Without it this member may not vote: let "
                "another one remove it, and come back with a new dLegerSelfId and an empty store"
            ) from None
        if (saved.group, saved.member) != (self._group, self._member):
            raise StoreMismatch(
                f"{self.path} is that of member {saved.member} of group {saved.group}, not of "
                f"{self._member} of {self._group}: set dLegerSelfId and dLegerGroup as they were, "
                "or begin with an empty store"
            )
        return saved.state

    def save(self, state: HardState) -> None:
        content = msgspec.json.encode(_Saved(self._group, self._member, state))
        self._disk.write_whole(self.path, content)


def require_no_member(root: Path) -> None:
    """StoreMismatch when a store belongs to a group, for a broker that is in none."""
    if (root / NAME).exists():
        raise StoreMismatch(
            f"{root} is the store of a member of a Raft group: set enableDLegerCommitLog=true, or "
            "another storePathRootDir"
        )
