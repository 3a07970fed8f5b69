"""What goes wrong between a master and its slaves."""


class ReplicationError(Exception):
    """Base of everything this package raises."""


class BrokenStream(ReplicationError):
    """The other end does not speak the stream."""


class OutOfStep(ReplicationError):
    """The master sends other bytes than those that follow here."""


class LogsDiffer(ReplicationError):
    """A slave's log is no copy of its master's. Nothing is copied until an operator has decided
    which of them is to be kept."""
