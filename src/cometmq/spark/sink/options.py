"""Options of the sink, read and checked: where rows go, and what is guaranteed about them.

Pure. What is unknown or contradictory is refused by its name, before anything is sent.
"""

import dataclasses
import enum
from collections.abc import Mapping
from typing import TypeVar

from cometmq.client.cluster import Cluster
from cometmq.client.consumer.subscriptions import check_group
from cometmq.client.errors import IllegalArgument
from cometmq.client.message import BODY_BYTES_MAX
from cometmq.protocol.errors import IllegalMessage
from cometmq.protocol.names import check_topic

from ..connection import CONNECTION, cluster_of
from ..errors import BadOption
from ..option_values import canonical, count, duration_s

KNOWN = (
    *CONNECTION, "topic", "deliveryGuarantee", "acknowledge", "producerGroup", "sendTimeout",
    "maxBatchBytes",
)  # fmt: skip
SPARKS_OWN = ("checkpointLocation", "path", "queryName")
"""What Spark itself puts among the options of a write."""
PRODUCER_GROUP = "SPARK_SINK"
BATCH_BYTES = 1 << 20
BATCH_BYTES_MIN = 1024

Kind = TypeVar("Kind", bound=enum.Enum)


class Guarantee(enum.Enum):
    AT_LEAST_ONCE = "at-least-once"
    IDEMPOTENT = "idempotent"
    TRANSACTIONAL = "transactional"


class Acknowledge(enum.Enum):
    """When a message counts as sent."""

    SAFE = "safe"
    """When it is as safe as the broker is configured to keep it (SEND_OK)."""
    STORED = "stored"
    """Also when the disk or a slave was too slow to confirm it, or no slave is there."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class SinkOptions:
    cluster: Cluster
    topic: str
    """Empty: the column says it."""
    guarantee: Guarantee
    acknowledge: Acknowledge
    producer_group: str
    send_timeout_s: float
    """How long a message is tried again while its broker is away, and a topic is looked for."""
    batch_bytes: int
    """Of a request with several messages, at most."""

    @property
    def has_fixed_ids(self) -> bool:
        """Whether a row has the same id and the same queue whenever it is sent."""
        return self.guarantee is not Guarantee.AT_LEAST_ONCE

    @property
    def is_transactional(self) -> bool:
        return self.guarantee is Guarantee.TRANSACTIONAL


def read_sink_options(given: Mapping[str, str]) -> SinkOptions:
    options = canonical(given, (*KNOWN, *SPARKS_OWN))
    if "path" in options:
        raise BadOption("path: messages go to a topic; set the option topic, and save()")
    return SinkOptions(
        cluster=cluster_of(options),
        topic=_topic(options),
        guarantee=_one_of(Guarantee, options, "deliveryGuarantee", Guarantee.AT_LEAST_ONCE),
        acknowledge=_one_of(Acknowledge, options, "acknowledge", Acknowledge.SAFE),
        producer_group=_producer_group(options),
        send_timeout_s=duration_s(options, "sendTimeout", 60.0),
        batch_bytes=_batch_bytes(options),
    )


def _topic(options: Mapping[str, str]) -> str:
    if "topic" not in options:
        return ""
    try:
        return check_topic(options["topic"].strip())
    except IllegalMessage as error:
        raise BadOption(str(error)) from None


def _producer_group(options: Mapping[str, str]) -> str:
    try:
        return check_group(options.get("producerGroup", "").strip() or PRODUCER_GROUP)
    except IllegalArgument as error:
        raise BadOption(f"producerGroup: {error}") from None


def _batch_bytes(options: Mapping[str, str]) -> int:
    found = count(options, "maxBatchBytes") or BATCH_BYTES
    if not BATCH_BYTES_MIN <= found <= BODY_BYTES_MAX:
        raise BadOption(f"maxBatchBytes: {BATCH_BYTES_MIN} to {BODY_BYTES_MAX} is possible")
    return found


def _one_of(kind: type[Kind], options: Mapping[str, str], name: str, default: Kind) -> Kind:
    value = options.get(name, "").strip().lower()
    if name not in options:
        return default
    try:
        return kind(value)
    except ValueError:
        possible = ", ".join(str(one.value) for one in kind)
        raise BadOption(f"{name} is one of {possible}, not {options[name]!r}") from None
