"""What can be wrong with a lake."""

from ...errors import SparkError


class LakeError(SparkError):
    """A lake and a checkpoint that do not belong together, or files that somebody took away."""
