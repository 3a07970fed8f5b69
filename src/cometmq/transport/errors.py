"""What can go wrong between two ends of a connection."""


class TransportError(OSError):
    """Base of everything this package raises."""


class ConnectFailed(TransportError):
    """Nobody answers at that address."""


class ConnectionClosed(TransportError):
    """The connection ended before the answer came."""


class RequestTimeout(TransportError):
    """No answer within the time allowed."""
