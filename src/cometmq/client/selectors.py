"""Queue selectors: the queue of a message by its key, by chance or by the broker's machine room.

Java and Python producers put the same key into the same queue if both list a topic's queues in the
same order. Java's is that of the publish route: by broker name and number; for a topic with an
order configuration, as written there. One's own selector is any function of the same shape.
"""

import random
from collections.abc import Callable, Sequence, Set
from typing import Any

from cometmq.client.allocation import machine_room
from cometmq.protocol.java import string_hash
from cometmq.protocol.message_queue import MessageQueue

Selector = Callable[[Sequence[MessageQueue], Any, Any], MessageQueue]
"""Called with the topic's queues, at least one, the message and the key given to `send`."""

_INT_MAX = 2**31 - 1
_LONG_MAX = 2**63 - 1


def by_hash(queues: Sequence[MessageQueue], _message: object, key: object) -> MessageQueue:
    """The same queue for the same key, as long as the topic's queues stay the same."""
    # Java takes the remainder first and its size then, so that even -2**31 finds a queue.
    return queues[abs(java_hash(key)) % len(queues)]


def by_random(queues: Sequence[MessageQueue], _message: object, _key: object) -> MessageQueue:
    return random.choice(queues)  # noqa: S311 - spreads load


def by_machine_room(rooms: Set[str], inside: Selector = by_random) -> Selector:
    """Only queues of brokers named `room@name` with one of these rooms; `inside` picks from them.

    Java has a selector of this name, but it never selects anything.
    """

    def select(queues: Sequence[MessageQueue], message: object, key: object) -> MessageQueue:
        there = [queue for queue in queues if machine_room(queue.broker_name) in rooms]
        if not there:
            raise ValueError(
                f"no queue of topic {queues[0].topic} is in the machine rooms {sorted(rooms)}: "
                "a broker's room is what stands before the @ in its name"
            )
        return inside(there, message, key)

    return select


def java_hash(key: object) -> int:
    """Java's hashCode of a String, an Integer or, for numbers too big for that, a Long."""
    if isinstance(key, str):
        return string_hash(key)
    if not isinstance(key, int) or isinstance(key, bool):
        raise TypeError(
            f"a key is a str or an int, not {type(key).__name__}: others have no hash that all "
            "producers agree on; use str(key)"
        )
    if not -_LONG_MAX - 1 <= key <= _LONG_MAX:
        raise ValueError(f"a number as key has at most 64 bits: {key}; use str(key)")
    return key if -_INT_MAX - 1 <= key <= _INT_MAX else _long_hash(key)


def _long_hash(number: int) -> int:
    folded = (number ^ (number >> 32)) & 0xFFFFFFFF
    return folded - 0x1_0000_0000 if folded > _INT_MAX else folded
