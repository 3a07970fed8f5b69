"""Where the members of a group are.

The log says who there is, this member's settings say where: it may have a way of its own to another
one. Before the log has told anything, all are there whom the settings name.
"""

from collections.abc import Set


class AddressBook:
    def __init__(self, settings: dict[str, str]) -> None:
        self._settings = settings
        self.entries = dict(settings)
        """Id of a member → host:port."""

    def replace(self, told: dict[str, str]) -> None:
        """What the log tells is complete."""
        self.entries = {m: self._settings.get(m, address) for m, address in told.items()}

    def add(self, member: str, address: str) -> None:
        self.entries = {**self.entries, member: self._settings.get(member, address)}

    def forget(self, members: Set[str]) -> None:
        self.entries = {m: address for m, address in self.entries.items() if m not in members}
