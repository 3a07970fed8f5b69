"""What can be wrong with bytes or values handed to the codecs."""


class ProtocolError(ValueError):
    """Base of everything this package raises."""


class MalformedRecord(ProtocolError):
    """Bytes that should be a record, a batch or an id, and are not."""


class IllegalMessage(ProtocolError):
    """A message that cannot be stored; the text says which limit it breaks."""
