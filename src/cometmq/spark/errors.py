"""What can go wrong between Spark and a cluster. Messages name the option or the queue."""


class SparkError(Exception):
    """Base of everything that this package raises."""


class BadOption(SparkError, ValueError):
    """An option that is unknown, contradicts another one, or has a value that cannot be read."""


class NotThere(BadOption):
    """A topic, group, lake or store that was named does not exist."""


class DataLost(SparkError):
    """Messages that a query should have read are no longer there."""


class NotReady(SparkError):
    """Something that Spark needs is missing; the text says what to install."""


class ClusterAway(SparkError):
    """A broker or NameServer did not come back in time."""


class NotPermitted(SparkError):
    """A broker does not let these credentials read or write there."""


class Unreadable(SparkError):
    """A message that is there but cannot be made a row."""


class NotSent(SparkError):
    """A row that cannot be a message, or that no broker takes."""


class TooManyHalves(NotSent):
    """A broker takes no more half messages until some are decided."""
