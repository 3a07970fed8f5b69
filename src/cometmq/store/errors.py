"""What the store says when it cannot do as asked."""


class StoreError(Exception):
    """Base of everything this package raises."""


class StoreLocked(StoreError):
    """Another process, or another store in this one, has the directory open."""


class StoreMismatch(StoreError):
    """Files on disk that do not fit the configuration or one another."""


class StoreClosed(StoreError):
    """The store was closed."""


class AppendRefused(StoreError):
    """A message was not taken. Nothing of it is in the log."""


class MessageTooLarge(AppendRefused):
    """Over `maxMessageSize`, or larger than a CommitLog file can hold."""


class DiskFull(AppendRefused):
    """No space for messages. Reads go on; sends resume by themselves when there is space."""


class TooManyQueues(AppendRefused):
    """A message for a new queue, where no more files may be open. Others go on."""


class StoreFailed(AppendRefused):
    """Data could not be made durable. Nothing more is acknowledged until a restart."""


class WaitTimeout(StoreError):
    """A watermark did not reach the wanted offset in time."""


class ReplicaTimeout(WaitTimeout):
    """Not enough other brokers had a message in time. It is in the log here."""


class NotConfirmed(WaitTimeout):
    """No majority had a message in time. It may still come to be confirmed, or go."""


class LeadershipLost(StoreError):
    """Another member of the group leads, or none: what waited may be confirmed there, or go."""


class ReplicasMissing(StoreError):
    """There are not enough other brokers that could have a message. It is in the log here."""


class WaitersFull(StoreError):
    """Too many callers wait on one watermark already."""
