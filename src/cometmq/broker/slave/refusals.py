"""What a slave does not do, and how it says so: as RocketMQ's slaves do."""

from collections.abc import Iterable

from cometmq.protocol.codes import RequestCode, ResponseCode
from cometmq.protocol.command import Command
from cometmq.transport.connection import Connection, Handler, Refusal

_MESSAGES = (
    RequestCode.SEND_MESSAGE,
    RequestCode.SEND_MESSAGE_V2,
    RequestCode.SEND_BATCH_MESSAGE,
    RequestCode.SEND_REPLY_MESSAGE,
    RequestCode.SEND_REPLY_MESSAGE_V2,
    RequestCode.CONSUMER_SEND_MSG_BACK,
)
_DECISIONS = (RequestCode.END_TRANSACTION, RequestCode.RECALL_MESSAGE)
_TABLES = (
    RequestCode.UPDATE_AND_CREATE_TOPIC,
    RequestCode.UPDATE_AND_CREATE_TOPIC_LIST,
    RequestCode.DELETE_TOPIC_IN_BROKER,
    RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP,
    RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST,
    RequestCode.DELETE_SUBSCRIPTIONGROUP,
    RequestCode.UPDATE_AND_GET_GROUP_FORBIDDEN,
    RequestCode.CLEAN_UNUSED_TOPIC,
)
_OFFSETS = (RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, RequestCode.CLONE_GROUP_OFFSET)


def refusals() -> dict[int, Handler]:
    """Handlers that take the place of those that would change anything but offsets of readers."""
    return {
        **_refuse(
            _MESSAGES,
            ResponseCode.SERVICE_NOT_AVAILABLE,
            "service not available now: the broker is a slave, write to its master",
        ),
        **_refuse(
            _DECISIONS, ResponseCode.SLAVE_NOT_AVAILABLE, "the broker is a slave, ask its master"
        ),
        **_refuse(
            _TABLES,
            ResponseCode.SYSTEM_ERROR,
            "Can't modify topic or subscription group from slave broker, please execute it from "
            "master broker.",
        ),
        **_refuse(
            _OFFSETS, ResponseCode.SYSTEM_ERROR, "Can not reset offset in slave broker"
        ),
    }  # fmt: skip


def _refuse(codes: Iterable[int], answer: ResponseCode, remark: str) -> dict[int, Handler]:
    def handler(_: Connection, __: Command) -> None:
        raise Refusal(answer, remark)

    return dict.fromkeys(codes, handler)
