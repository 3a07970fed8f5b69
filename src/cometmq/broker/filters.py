"""Filters by properties: expressions compiled once, and reads that let only matches through."""

import functools
import logging

from cometmq.protocol import sql92
from cometmq.protocol.codes import ResponseCode
from cometmq.protocol.record import iter_spans
from cometmq.protocol.sql92 import Filter, IllegalFilter
from cometmq.protocol.subscription import SQL92, TAG, SubscriptionData
from cometmq.store.message_store import MessageStore
from cometmq.store.reading import ReadResult, ReadStatus
from cometmq.transport.connection import Refusal

from .config import BrokerConfig

log = logging.getLogger(__name__)
SCANNED_MAX = 4096
"""Messages that one pull looks at, so that a filter that matches nothing cannot run on."""
STEP_COUNT = 256
STEP_BYTES = 1024**2
COMPILED_MAX = 1024
"""Expressions kept ready."""


@functools.lru_cache(COMPILED_MAX)
def compiled(expression: str) -> Filter:
    ready = sql92.compile(expression)
    if ready.unread:
        # RocketMQ does the same, in silence.
        log.warning("filter %r: %r is not part of it and ignored", expression, ready.unread)
    return ready


def filter_of(subscription: SubscriptionData, config: BrokerConfig) -> Filter | None:
    """The filter that a subscription asks for; None when tags are all it looks at."""
    kind = subscription.expression_type
    if kind in (TAG, ""):
        return None
    if kind != SQL92 or not config.property_filter:
        raise Refusal(
            ResponseCode.SYSTEM_ERROR,
            f"The broker does not support consumer to filter message by {kind}"
            + (": enablePropertyFilter is false" if kind == SQL92 else ""),
        )
    try:
        return compiled(subscription.sub_string)
    except IllegalFilter as error:
        raise Refusal(
            ResponseCode.SUBSCRIPTION_PARSE_FAILED,
            f"parse the consumer's subscription failed: {error}",
        ) from None


def read_matching(
    store: MessageStore,
    topic: str,
    queue_id: int,
    offset: int,
    count_max: int,
    bytes_max: int,
    wanted: Filter,
) -> ReadResult:
    """What `MessageStore.read` gives, less the messages that a filter does not let through."""
    found: list[memoryview] = []
    size = scanned = 0
    at = offset
    while True:
        result = store.read(topic, queue_id, at, count_max=STEP_COUNT, bytes_max=STEP_BYTES)
        if not result.count:
            break
        for piece in result.slices:
            for span in iter_spans(piece):
                if wanted.matches_encoded(span.properties):
                    length = span.end - span.start
                    if found and (len(found) == count_max or size + length > bytes_max):
                        return _found(result, found, size, span.queue_offset)
                    found.append(piece[span.start : span.end])
                    size += length
        at = result.next_offset
        scanned += result.count
        if scanned >= SCANNED_MAX:
            break
    if found:
        return _found(result, found, size, at)
    if scanned:
        return _nothing(result, at)
    return result


def _found(result: ReadResult, found: list[memoryview], size: int, next_offset: int) -> ReadResult:
    return ReadResult(
        status=ReadStatus.FOUND,
        next_offset=next_offset,
        min_offset=result.min_offset,
        max_offset=result.max_offset,
        slices=found,
        count=len(found),
        size=size,
        damaged=result.damaged,
        behind_bytes=result.behind_bytes,
    )


def _nothing(result: ReadResult, next_offset: int) -> ReadResult:
    return ReadResult(
        status=ReadStatus.NO_MATCHED_MESSAGE,
        next_offset=next_offset,
        min_offset=result.min_offset,
        max_offset=result.max_offset,
        damaged=result.damaged,
        behind_bytes=result.behind_bytes,
    )
