"""How fast and how patient both ends of the stream are."""

import dataclasses


@dataclasses.dataclass(frozen=True, kw_only=True)
class Pace:
    heartbeat_ms: int = 5000
    """After so long without anything to say each end gives a sign of life."""
    silence_ms: int = 20_000
    """An end that was not heard of for so long is taken for dead."""
    batch_bytes: int = 32 * 1024
    """Log bytes in a frame."""
