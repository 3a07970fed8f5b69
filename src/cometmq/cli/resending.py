"""Copies of messages that are there already."""

import argparse
from typing import Final

from cometmq.client.message import RESERVED, SHARDING_KEY, Message
from cometmq.client.producer.producer import Producer
from cometmq.client.producer.results import SendResult
from cometmq.client.received import ReceivedMessage

from .connection import cluster_of

GROUP: Final = "COMETMQ_CLI"
RESENT_FROM: Final = "RESENT_FROM"
"""A copy's property: the id of the message that it is a copy of."""


async def resend(options: argparse.Namespace, message: ReceivedMessage, topic: str) -> SendResult:
    async with Producer(cluster_of(options), group=GROUP) as producer:
        return await producer.send(copy_of(message, topic))


def copy_of(message: ReceivedMessage, topic: str) -> Message:
    """Body, tags, keys, sharding key and the sender's own properties."""
    own = {
        name: value
        for name, value in message.properties.items()
        if name not in RESERVED and not name.startswith("__")
    }
    return Message(
        topic,
        message.body,
        tags=message.tags,
        keys=message.keys,
        sharding_key=message.properties.get(SHARDING_KEY, ""),
        properties={**own, RESENT_FROM: message.message_id},
    )
