"""Times and sizes of a Raft group. All members of a group should have the same."""

from msgspec import Struct


class RaftSettings(Struct, frozen=True):
    heartbeat_ms: int = 150
    election_min_ms: int = 900
    """Without a word from the leader for so long, a member may think of another one. Until then
    it refuses its vote: that is what makes a leader's lease safe."""
    election_max_ms: int = 1500
    campaign_min_ms: int = 200
    campaign_max_ms: int = 600
    """A campaign that came to nothing is followed by the next one after this time by chance. It is
    short: that the leader is gone is known by then."""
    check_quorum_ms: int = 1500
    """A leader that no majority has answered for so long steps down."""
    lease_ms: int = 675
    """How long after a heartbeat that a majority answered there is surely no other leader. Shorter
    than `election_min_ms` by more than clocks drift apart in that time."""
    transfer_ms: int = 1500
    """How long a leader takes no appends while it hands over; then it goes on."""
    chunk_bytes_max: int = 256 * 1024
    """Bytes in one message, unless a single record is longer."""
    window_bytes_max: int = 4 * 1024 * 1024
    """Bytes on their way to one member: sent, but not known to be stored there."""
    unconfirmed_bytes_max: int = 64 * 1024 * 1024
    """Bytes that a leader takes ahead of the majority."""
    catch_up_bytes: int = 1024 * 1024
    """How close to the log's end a learner must be to become a voter."""
