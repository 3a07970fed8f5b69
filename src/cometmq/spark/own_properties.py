"""Which properties of a stored message are its sender's own, to be sent again. Pure.

What brokers and clients have added tells of the first journey: how often it was retried, where it
waited, which transaction it belonged to. A message that is sent again begins a new one.
"""

from collections.abc import Mapping
from typing import Final

from cometmq.client.message import RESERVED, SHARDING_KEY
from cometmq.protocol.properties import KEYS, TAGS

FIELDS: Final = (TAGS, KEYS, SHARDING_KEY)
"""What a sender decides besides its own properties."""
ADDED: Final = frozenset({
    *(RESERVED - set(FIELDS)), "INNER_NUM", "INNER_BASE", "DUP_INFO",
    "CHECK_IMMUNITY_TIME_IN_SECONDS", "TRAN_PREPARED_QUEUE_OFFSET", "__transactionId__",
    "TRANSACTION_CHECK_TIMES", "INSTANCE_ID", "ARRIVE_TIME", "PUSH_REPLY_TIME", "CLUSTER",
    "MSG_TYPE", "POP_CK", "POP_CK_OFFSET", "1ST_POP_TIME", "PROPERTY_FORWARD_QUEUE_ID", "REDIRECT",
    "INNER_MULTI_DISPATCH", "INNER_MULTI_QUEUE_OFFSET", "TRACE_CONTEXT", "__BORNHOST",
    "BORN_TIMESTAMP", "TIMER_ENQUEUE_MS", "TIMER_DEQUEUE_MS", "TIMER_ROLL_TIMES", "TIMER_OUT_MS",
    "TIMER_DEL_UNIQKEY", "TIMER_DELAY_LEVEL", "DLQ_ORIGIN_TOPIC", "DLQ_ORIGIN_MESSAGE_ID",
})  # fmt: skip
"""By RocketMQ's brokers and clients."""
ADDED_PREFIX: Final = "__RMQ.TRANSIENT."


def own_properties(stored: Mapping[str, str]) -> dict[str, str]:
    """Tags, keys and sharding key, and what the sender set by other names."""
    return {
        name: value
        for name, value in stored.items()
        if name not in ADDED and not name.startswith(ADDED_PREFIX)
    }
