"""A pull as who administrates asks for it: as no member of a group, saying what it wants."""

from typing import Final

from cometmq.protocol.codes import ResponseCode
from cometmq.protocol.message_queue import MessageQueue
from cometmq.protocol.names import TOOLS_GROUP
from cometmq.protocol.subscription import ALL, TAG

from ..link import SUCCESS

_SUBSCRIPTION_INSIDE: Final = 4
_MAY_WAIT: Final = 2
PULLED_OR_NOT: Final = SUCCESS | {
    int(ResponseCode.PULL_NOT_FOUND),
    int(ResponseCode.PULL_RETRY_IMMEDIATELY),
    int(ResponseCode.PULL_OFFSET_MOVED),
}


def pull_fields(
    queue: MessageQueue,
    offset: int,
    count: int,
    *,
    group: str = TOOLS_GROUP,
    tags: str = ALL,
    held_s: float = 0.0,
) -> dict[str, object]:
    return {
        "consumerGroup": group, "topic": queue.topic, "queueId": queue.queue_id,
        "queueOffset": offset, "maxMsgNums": count,
        "sysFlag": _SUBSCRIPTION_INSIDE | (_MAY_WAIT if held_s else 0),
        "commitOffset": 0, "suspendTimeoutMillis": round(held_s * 1000), "subscription": tags,
        "subVersion": 0, "expressionType": TAG,
    }  # fmt: skip
