"""What a producer may be told, with its defaults: RocketMQ's where it has the same option."""

import dataclasses
from typing import TypedDict

from ..errors import IllegalArgument
from ..message import BODY_BYTES_MAX
from .packing import COMPRESSIONS, Compression


@dataclasses.dataclass(frozen=True, kw_only=True)
class ProducerOptions:
    timeout_s: float = 3.0
    """For a whole send, all attempts together."""
    retries: int = 2
    """Further attempts: of `send` at another broker, of all others at the same one."""
    retry_another_broker_when_not_stored: bool = False
    """Whether `send` tries on when a message is stored, but less safely than it should be."""
    send_latency_fault: bool = False
    """Whether brokers that were slow or failed are left alone for a while."""
    default_topic_queues: int = 4
    """How many queues a topic gets at most that comes into being by its first message."""
    max_message_bytes: int = BODY_BYTES_MAX
    compression: Compression | None = "zlib"
    compress_over: int = 4096
    """Bodies of so many bytes travel packed, where that makes them shorter. Batches do not."""
    compress_level: int = 5
    max_in_flight: int = 1024
    """Messages that may linger or wait for their answers."""
    max_in_flight_bytes: int = 32 * 1024**2
    """Of their bodies. A connection with more than 64 MiB unsent is taken for dead."""
    linger_s: float = 0.0
    """For how long a message waits for others to travel with it; 0: it goes at once, alone."""
    batch_messages_max: int = 128
    batch_bytes_max: int = 64 * 1024

    def __post_init__(self) -> None:
        for name in ("max_in_flight", "max_in_flight_bytes", "max_message_bytes",
                     "default_topic_queues", "batch_messages_max", "batch_bytes_max"):  # fmt: skip
            if getattr(self, name) < 1:
                raise IllegalArgument(f"{name}: 1 or more is possible")
        if self.timeout_s <= 0 or self.retries < 0 or self.linger_s < 0:
            raise IllegalArgument("timeout_s must be over 0, retries and linger_s not below")
        if self.compression not in (None, *COMPRESSIONS):
            raise IllegalArgument(
                f"compression {self.compression!r}: {', '.join(COMPRESSIONS)} or None is possible"
            )
        if self.batch_bytes_max > self.max_message_bytes:
            raise IllegalArgument("batch_bytes_max: not more than max_message_bytes is possible")


class ProducerKeywords(TypedDict, total=False):
    """The same as keyword arguments."""

    timeout_s: float
    retries: int
    retry_another_broker_when_not_stored: bool
    send_latency_fault: bool
    default_topic_queues: int
    max_message_bytes: int
    compression: Compression | None
    compress_over: int
    compress_level: int
    max_in_flight: int
    max_in_flight_bytes: int
    linger_s: float
    batch_messages_max: int
    batch_bytes_max: int
