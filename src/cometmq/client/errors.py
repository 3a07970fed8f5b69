"""What can go wrong for a client: one class for each answer of a broker, a few for the way there.

Every error says what happened and what to do about it. `BrokerError` has the answer's code and
the broker's own words; a code without a class of its own is a plain `BrokerError`.
"""

import contextlib
from collections.abc import Iterator
from typing import ClassVar

from cometmq.protocol.codes import ResponseCode
from cometmq.protocol.errors import ProtocolError


class ClientError(Exception):
    """Base of everything that this package raises."""


class IllegalArgument(ClientError, ValueError):
    """A value that no broker would take: found before anything was sent."""


class NotStarted(ClientError):
    """Used before `start()` or after `stop()`."""


class WouldBlock(ClientError):
    """A blocking call inside of an event loop: use the asyncio client there."""


class Unreachable(ClientError):
    """No connection to a NameServer or broker."""


class ConnectionLost(ClientError):
    """The connection ended before the answer came: what was asked for may have happened or not."""


class AnswerTimedOut(ClientError):
    """No answer in time: what was asked for may have happened or not."""


class BadAnswer(ClientError):
    """A broker or NameServer answered with something that cannot be read."""


@contextlib.contextmanager
def answers_read() -> Iterator[None]:
    """What is wrong with an answer's fields or body, as this package names it."""
    try:
        yield
    except (ProtocolError, KeyError, ValueError) as error:
        raise BadAnswer(f"an answer cannot be read: {error}") from error


class NoRoute(ClientError):
    """The topic is known, but no broker with such queues is there now."""


class OffsetsNotSaved(ClientError):
    """The file with a member's own progress cannot be written: look after its disk."""


class TooManyInFlight(ClientError):
    """More sends wait for their answers than the producer allows."""


class SendFailed(ClientError):
    """All attempts at a send failed; the last one's error is the cause."""


class BrokerError(ClientError):
    """A broker or NameServer answered, and the answer is no."""

    code: int = -1
    advice: ClassVar[str] = ""

    def __init__(self, remark: str | None, *, code: int | None = None, peer: str = "") -> None:
        self.code = self.code if code is None else code
        self.remark = (remark or "").strip()
        self.peer = peer
        said = self.remark or type(self).__name__
        where = f" by {peer}" if peer else ""
        advice = f"; {self.advice}" if self.advice else ""
        super().__init__(f"answered{where} with code {self.code}: {said}{advice}")


class BrokerFailed(BrokerError):
    code = ResponseCode.SYSTEM_ERROR
    advice = "the broker's log says more"


class BrokerBusy(BrokerError):
    code = ResponseCode.SYSTEM_BUSY
    advice = "send more slowly, or try again in a moment"


class NotSupported(BrokerError):
    code = ResponseCode.REQUEST_CODE_NOT_SUPPORTED
    advice = "this server does not have that feature"


class FlushDiskTimedOut(BrokerError):
    code = ResponseCode.FLUSH_DISK_TIMEOUT
    advice = "the message is in memory there, but not yet known to be on disk"


class SlaveNotAvailable(BrokerError):
    code = ResponseCode.SLAVE_NOT_AVAILABLE
    advice = "the message is on the master alone; look after the slaves"


class FlushSlaveTimedOut(BrokerError):
    code = ResponseCode.FLUSH_SLAVE_TIMEOUT
    advice = "the message is on the master, but no slave confirmed it in time"


class MessageIllegal(BrokerError):
    code = ResponseCode.MESSAGE_ILLEGAL
    advice = "make the message smaller, or mend its properties"


class ServiceNotAvailable(BrokerError):
    code = ResponseCode.SERVICE_NOT_AVAILABLE
    advice = "the broker takes no writes: its disk is full, it is a slave, or it is stopping"


class VersionNotSupported(BrokerError):
    code = ResponseCode.VERSION_NOT_SUPPORTED
    advice = "the server is too old for this request"


class NoPermission(BrokerError):
    code = ResponseCode.NO_PERMISSION
    advice = "check the permissions of broker, topic and group, and your credentials"


class TopicNotFound(BrokerError):
    code = ResponseCode.TOPIC_NOT_EXIST
    advice = "create the topic first, or let the broker do it (autoCreateTopicEnable)"


class TopicExists(BrokerError):
    code = ResponseCode.TOPIC_EXIST_ALREADY
    advice = "take another name, or use the topic that is there"


class PullNotFound(BrokerError):
    code = ResponseCode.PULL_NOT_FOUND
    advice = "there is no message at that offset yet"


class PullAgain(BrokerError):
    code = ResponseCode.PULL_RETRY_IMMEDIATELY
    advice = "nothing matched so far; pull again from the next offset"


class OffsetMoved(BrokerError):
    code = ResponseCode.PULL_OFFSET_MOVED
    advice = "the offset is outside of what the queue has; continue at its beginning or end"


class NotFound(BrokerError):
    code = ResponseCode.QUERY_NOT_FOUND
    advice = "nothing there fits what was asked for"


class BadSubscription(BrokerError):
    code = ResponseCode.SUBSCRIPTION_PARSE_FAILED
    advice = "mend the filter expression"


class SubscriptionUnknown(BrokerError):
    code = ResponseCode.SUBSCRIPTION_NOT_EXIST
    advice = "the broker has not heard of this consumer yet; its next heartbeat tells it"


class SubscriptionOutdated(BrokerError):
    code = ResponseCode.SUBSCRIPTION_NOT_LATEST
    advice = "the broker has an older subscription; the next heartbeat brings the new one"


class GroupNotFound(BrokerError):
    code = ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST
    advice = "create the group first, or let the broker do it (autoCreateSubscriptionGroup)"


class FilterUnknown(BrokerError):
    code = ResponseCode.FILTER_DATA_NOT_EXIST
    advice = "the broker has not heard of this filter yet; the next heartbeat tells it"


class FilterOutdated(BrokerError):
    code = ResponseCode.FILTER_DATA_NOT_LATEST
    advice = "the broker has an older filter; the next heartbeat brings the new one"


class InvalidParameter(BrokerError):
    code = ResponseCode.INVALID_PARAMETER
    advice = "mend the value that it names"


class ConsumerNotOnline(BrokerError):
    code = ResponseCode.CONSUMER_NOT_ONLINE
    advice = "no consumer of that group is connected"


class ConsumeTimedOut(BrokerError):
    code = ResponseCode.CONSUME_MSG_TIMEOUT
    advice = "the consumer did not answer in time"


class BrokerNotFound(BrokerError):
    code = ResponseCode.BROKER_NOT_EXIST
    advice = "the cluster has no such broker now; list its brokers"


class GroupBroadcasts(BrokerError):
    code = ResponseCode.BROADCAST_CONSUMPTION
    advice = "members of a broadcasting group keep their own offsets"


class IllegalOperation(BrokerError):
    code = ResponseCode.ILLEGAL_OPERATION
    advice = "it is too late for this, or this server never allows it"


# What CometMQ never answers, and Apache RocketMQ 5 does.


class TransactionFailed(BrokerError):
    code = 4
    advice = "the transaction is lost; send the message again"


class FlowControlled(BrokerError):
    code = 215
    advice = "the broker limits this client; ask more slowly"


class NotLeader(BrokerError):
    code = 501
    advice = "the queue moved to another broker; routes tell where within half a minute"


class GoingAway(BrokerError):
    code = 1500
    advice = "the broker is stopping; try again, on another one if there is one"


class UserNotFound(BrokerError):
    code = 3001
    advice = "create the user first"


class PolicyNotFound(BrokerError):
    code = 3002
    advice = "create the access policy first"


def _with_codes(base: type[BrokerError]) -> dict[int, type[BrokerError]]:
    return {int(kind.code): kind for kind in base.__subclasses__()}


_BY_CODE = _with_codes(BrokerError)


def error_of(code: int, remark: str | None, peer: str = "") -> BrokerError:
    """The error that an answer with this code stands for."""
    return _BY_CODE.get(code, BrokerError)(remark, code=code, peer=peer)
