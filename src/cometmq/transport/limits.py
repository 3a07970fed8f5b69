"""How much one connection may use, and for how long it may stay away."""

import dataclasses

from cometmq.protocol.command import FRAME_BYTES_MAX

MIB = 1024**2


@dataclasses.dataclass(frozen=True, kw_only=True)
class Limits:
    frame_bytes_max: int = FRAME_BYTES_MAX
    idle_s: float = 120.0
    """Without a whole frame in either direction for so long, a connection is closed."""
    output_bytes_high: int = MIB
    """With so much unsent, no further request of that peer is taken until it reads."""
    output_bytes_max: int = 64 * MIB
    """With so much unsent, a peer that does not read is cut off."""
    working_max: int = 10_000
    """Requests of one peer whose handlers may be at work; with so many, no further one is taken."""
    pending_max: int = 10_000
    """Requests of ours that may wait for their answers on one connection."""
    connections_max: int = 20_000
