"""Which queue a sender wants: one that it names, one that a selector picks, or that of a key."""

from cometmq.protocol.message_queue import MessageQueue

from ..errors import IllegalArgument
from ..message import Message
from ..selectors import Selector, by_hash
from .parcels import Choose, always


def choice(
    message: Message, queue: MessageQueue | None, selector: Selector | None, key: object
) -> Choose | None:
    """None if any queue will do. IllegalArgument if the wishes exclude each other."""
    if queue is not None:
        if selector is not None:
            raise IllegalArgument("a queue and a selector exclude each other: give one of them")
        return fixed(queue, message.topic)
    if selector is not None:
        return lambda queues: selector(queues, message, key)
    if key is not None:
        raise IllegalArgument("a key without a selector: `selector=by_hash` goes by it")
    if message.sharding_key:
        return lambda queues: by_hash(queues, message, message.sharding_key)
    return None


def fixed(queue: MessageQueue, topic: str) -> Choose:
    if queue.topic != topic:
        raise IllegalArgument(f"a queue of {queue.topic} for a message to {topic}")
    return always(queue)
