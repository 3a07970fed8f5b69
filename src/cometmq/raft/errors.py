"""What a caller did at the wrong time, and what must never happen."""


class RaftError(Exception):
    pass


class Refused(RaftError):
    """The request does not fit the state of the group; nothing was changed."""


class NotLeader(Refused):
    pass


class SafetyViolated(RaftError):
    """Something that Raft rules out: the member has to stop before it does harm.

    With synced logs it is an error in the program. With asynchronous flush it is also how a group
    notices that a power cut took confirmed bytes from a majority.
    """


def require(condition: bool, what: str) -> None:
    """Like an assert, but never switched off."""
    if not condition:
        raise SafetyViolated(what)
