"""Dead letters for the tests, made as consumers make them: by sending messages back too often."""

import asyncio
from collections.abc import Callable

from cometmq.client.admin import Admin
from cometmq.client.cluster import Cluster
from cometmq.client.consumer.returns import DEAD_LETTER, Returns
from cometmq.client.link import Link
from cometmq.client.names import Message, NotFound, Producer, ReceivedMessage, SendResult
from cometmq.protocol.names import DEAD_LETTER_PREFIX, RETRY_PREFIX

SOON = 1
"""The shortest delay level: a second."""


def bury(
    namesrv: str,
    topic: str,
    group: str,
    count: int,
    message: Callable[[int], Message] | None = None,
) -> list[str]:
    """Messages of a topic that a group failed at; their ids, in the order of the letters."""
    return asyncio.run(_bury(namesrv, topic, group, count, message))


async def _bury(
    namesrv: str, topic: str, group: str, count: int, message: Callable[[int], Message] | None
) -> list[str]:
    link = Link(Cluster(namesrv))
    async with Producer(namesrv, group="dead-letters") as producer, Admin(namesrv) as admin:
        await admin.groups.create(group)
        await link.routes.refresh(topic)
        link.start()
        returns = Returns(link, group, 0)
        ids = []
        try:
            for number in range(count):
                one = message(number) if message else Message(topic, b"letter %d" % number)
                sent = await producer.send(one)
                stored = await _stored(admin, sent)
                assert await returns.send_back(stored, DEAD_LETTER)
                ids.append(sent.message_id)
            await _announced(admin, DEAD_LETTER_PREFIX + group)
        finally:
            await link.stop()
    return ids


async def _announced(admin: Admin, topic: str) -> None:
    """The broker makes the topic with its first letter; the NameServer hears of it after that."""
    while topic not in await admin.topics.names(internal=True):
        await asyncio.sleep(0.01)


async def _stored(admin: Admin, sent: SendResult) -> ReceivedMessage:
    while True:
        try:
            return await admin.messages.at(sent.queue, sent.queue_offset)
        except NotFound:
            await asyncio.sleep(0.01)


def send_back(namesrv: str, sent: SendResult, group: str) -> None:
    """As a group does that fails at a message once; when the message is there again."""
    asyncio.run(_send_back(namesrv, sent, group))


async def _send_back(namesrv: str, sent: SendResult, group: str) -> None:
    link, retries = Link(Cluster(namesrv)), RETRY_PREFIX + group
    async with Admin(namesrv) as admin:
        await link.routes.refresh(sent.queue.topic)
        link.start()
        try:
            stored = await _stored(admin, sent)
            assert await Returns(link, group, -1).send_back(stored, SOON)
        finally:
            await link.stop()
        await _announced(admin, retries)
        while not (await admin.topics.stats(retries)).messages:
            await asyncio.sleep(0.05)


def messages_of(namesrv: str, topic: str) -> list[ReceivedMessage]:
    """All that a topic has."""

    async def read() -> list[ReceivedMessage]:
        async with Admin(namesrv) as admin:
            return [message async for message in admin.messages.read_topic(topic)]

    return asyncio.run(read())
