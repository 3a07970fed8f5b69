"""What the exit code of a command says."""

import enum


class Exit(enum.IntEnum):
    DONE = 0
    FAILED = 1
    USAGE = 2
    NOT_FOUND = 3
    UNREACHABLE = 4
    NOT_PERMITTED = 5
    DISK_FAILED = 74
    INTERRUPTED = 130
    PIPE_CLOSED = 141
    TERMINATED = 143


MEANINGS = {
    Exit.DONE: "done; commands that run until Ctrl-C or SIGTERM (servers, `consume`, `tail -f`, "
    "`--watch`, `spark archive` without `--once`) end so, too",
    Exit.FAILED: "not or not wholly done: a broker refused, or `doctor` found a problem",
    Exit.USAGE: "the command line or a file of settings is wrong; nothing was done",
    Exit.NOT_FOUND: "there is no such topic, group, broker, message, context …",
    Exit.UNREACHABLE: "a NameServer or broker does not answer",
    Exit.NOT_PERMITTED: "a broker does not permit it to this user, topic or group",
    Exit.DISK_FAILED: "a broker stopped because its disk cannot be trusted any more",
    Exit.INTERRUPTED: "ended by Ctrl-C",
    Exit.PIPE_CLOSED: "whoever read the output has gone, as `| head` does",
    Exit.TERMINATED: "ended by SIGTERM before all was done",
}


class WrongUse(Exception):
    """Arguments that do not go together: found before anything was done."""


class NothingThere(Exception):
    """What was asked for does not exist."""
