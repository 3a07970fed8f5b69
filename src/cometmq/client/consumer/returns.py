"""Messages that go back to the broker, to come again later or to end among the dead letters."""

import logging

from cometmq.protocol.codes import RequestCode

from ..errors import ClientError
from ..link import Link
from ..received import ReceivedMessage
from .progress import master_of

log = logging.getLogger(__name__)
DEAD_LETTER = -1


class Returns:
    def __init__(self, link: Link, group: str, max_reconsume_times: int) -> None:
        self._link = link
        self._group = group
        # Left out, the group's own setting decides.
        self._max_reconsume_times = max_reconsume_times if max_reconsume_times >= 0 else None

    async def send_back(self, message: ReceivedMessage, delay_level: int) -> bool:
        """Whether the broker took it; if not, it is still ours."""
        try:
            await self._link.ask(
                master_of(self._link, message.queue),
                RequestCode.CONSUMER_SEND_MSG_BACK,
                {
                    "offset": message.physical_offset,
                    "group": self._group,
                    "delayLevel": delay_level,
                    "originMsgId": message.message_id,
                    "originTopic": message.topic,
                    "unitMode": False,
                    "maxReconsumeTimes": self._max_reconsume_times,
                },
            )
        except ClientError as error:
            log.warning("message %s cannot be sent back now: %s", message.message_id, error)
            return False
        return True
