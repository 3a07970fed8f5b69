"""Committing for a consumer group that has no member here.

Topic by topic: one that was deleted, or whose broker is away, is no reason for the others to be
late.
"""

import asyncio
from collections.abc import Mapping

from cometmq.client.admin import Admin
from cometmq.client.errors import ClientError
from cometmq.protocol.message_queue import MessageQueue


async def commit(
    admin: Admin, group: str, offsets: Mapping[MessageQueue, int]
) -> dict[str, ClientError]:
    """Commit what can be committed now; by topic, why it could not."""
    topics = sorted({queue.topic for queue in offsets})
    parts = [{q: at for q, at in offsets.items() if q.topic == topic} for topic in topics]
    failures = await asyncio.gather(*(_commit_one(admin, group, part) for part in parts))
    return {topic: error for topic, error in zip(topics, failures, strict=True) if error}


async def _commit_one(
    admin: Admin, group: str, offsets: Mapping[MessageQueue, int]
) -> ClientError | None:
    try:
        await admin.offsets.commit(group, offsets)
    except ClientError as error:
        return error
    return None
