"""Pulls of consumers: checks, the read, and the wait when there is nothing yet."""

import asyncio
import os
from typing import NamedTuple

import msgspec

from cometmq.protocol.codes import RequestCode, ResponseCode
from cometmq.protocol.command import Command, Response
from cometmq.protocol.group_config import GroupConfig
from cometmq.protocol.headers import PullFields
from cometmq.protocol.heartbeat import BROADCASTING
from cometmq.protocol.scan import queue_key
from cometmq.protocol.sql92 import Filter
from cometmq.protocol.subscription import SQL92, SubscriptionData, tag_subscription
from cometmq.protocol.topic_config import PERM_READ
from cometmq.store.reading import ReadResult, ReadStatus
from cometmq.transport.connection import Connection, Handlers, Refusal

from .context import Context
from .filters import filter_of, read_matching
from .stats import GROUP_GET_NUMS, GROUP_GET_SIZE
from .waiting_pulls import WaitingPull

COMMIT_OFFSET = 0x1
SUSPEND = 0x2
SUBSCRIPTION = 0x4
SUSPEND_MS_MAX = 60_000
"""Longer than any client asks for; beyond, its request would time out at its own side."""
LEADERLESS_MS_MAX = 1000
"""How long a pull waits at a member of a group that knows no leader: there may be one elsewhere."""
PULL_COUNT_MAX = 10_000
PULL_BYTES_MAX = 8 * 1024 * 1024

_NO_FIELDS: dict[str, str] = {}
_MEMORY_BYTES = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")

_CODES = {
    ReadStatus.FOUND: ResponseCode.SUCCESS,
    ReadStatus.NO_MATCHED_MESSAGE: ResponseCode.PULL_RETRY_IMMEDIATELY,
    ReadStatus.OFFSET_OVERFLOW_ONE: ResponseCode.PULL_NOT_FOUND,
    ReadStatus.OFFSET_OVERFLOW_BADLY: ResponseCode.PULL_OFFSET_MOVED,
    ReadStatus.OFFSET_TOO_SMALL: ResponseCode.PULL_OFFSET_MOVED,
}

# What kind of thing a group may not read (`forbiddenType`).
_BROKER, _GROUP, _TOPIC, _BROADCAST, _SUBSCRIPTION = "1", "2", "3", "4", "5"


class _Pull(NamedTuple):
    """A pull that passed its checks."""

    connection: Connection
    command: Command
    fields: PullFields
    group: GroupConfig
    tag_hashes: frozenset[int] | None
    filter: Filter | None


class Pulls:
    def __init__(self, context: Context) -> None:
        self._context = context

    def handlers(self) -> Handlers:
        return {
            RequestCode.PULL_MESSAGE: self.pull,
            RequestCode.LITE_PULL_MESSAGE: self.pull,
        }

    def pull(self, connection: Connection, command: Command) -> Response | None:
        context = self._context
        fields = command.fields(PullFields)
        group = self._checked_group(fields)
        self._check_topic(connection, fields)
        subscription = self._subscription(connection, fields, group)
        pull = _Pull(
            connection, command, fields, group,
            _tag_hashes(subscription), filter_of(subscription, context.config),
        )  # fmt: skip
        if fields.sys_flag & COMMIT_OFFSET and fields.commit_offset >= 0:
            context.offsets.commit(
                group.group_name, fields.topic, fields.queue_id, fields.commit_offset
            )
        moved = context.offsets.take_reset(group.group_name, fields.topic, fields.queue_id)
        if moved is not None:
            return self._moved(pull, moved)
        return self._answer_or_hold(pull, fields.queue_offset)

    # -- checks ----------------------------------------------------------------------------------

    def _checked_group(self, fields: PullFields) -> GroupConfig:
        context = self._context
        if not context.config.permission & PERM_READ:
            raise _forbidden(
                _BROKER, f"the broker[{context.address.ip}] pulling message is forbidden"
            )
        group = context.groups.find(fields.consumer_group)
        if group is None:
            raise Refusal(
                ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST,
                f"subscription group [{fields.consumer_group}] does not exist: create it, or set "
                "autoCreateSubscriptionGroup=true",
            )
        if not group.consume_enable:
            raise _forbidden(_GROUP, f"subscription group no permission, {fields.consumer_group}")
        if not context.groups.may_read(fields.consumer_group, fields.topic):
            raise _forbidden(
                _SUBSCRIPTION,
                f"the consumer group[{fields.consumer_group}] is forbidden for "
                f"topic[{fields.topic}]",
            )
        return group

    def _check_topic(self, connection: Connection, fields: PullFields) -> None:
        topic = self._context.topics.get(fields.topic)
        if topic is None:
            raise Refusal(
                ResponseCode.TOPIC_NOT_EXIST,
                f"topic[{fields.topic}] not exist, apply first please!",
            )
        if not topic.is_readable:
            raise _forbidden(_TOPIC, f"the topic[{fields.topic}] pulling message is forbidden")
        if not 0 <= fields.queue_id < topic.read_queue_nums:
            raise Refusal(
                ResponseCode.INVALID_PARAMETER,
                f"queueId[{fields.queue_id}] is illegal, topic:[{fields.topic}] "
                f"topicConfig.readQueueNums:[{topic.read_queue_nums}] consumer:[{connection.peer}]",
            )

    def _subscription(
        self, connection: Connection, fields: PullFields, group: GroupConfig
    ) -> SubscriptionData:
        """What the consumer wants, as it says here or has said in its heartbeats."""
        if fields.sys_flag & SUBSCRIPTION:
            return _carried(fields)
        return self._registered(connection, fields, group)

    def _registered(
        self, connection: Connection, fields: PullFields, group: GroupConfig
    ) -> SubscriptionData:
        """The subscription that the consumer's heartbeats told."""
        online = self._context.clients.consumer_group(fields.consumer_group)
        if online is None:
            raise Refusal(
                ResponseCode.SUBSCRIPTION_NOT_EXIST,
                f"the consumer's group info not exist: no heartbeat of {fields.consumer_group}",
            )
        if not group.consume_broadcast_enable and online.message_model == BROADCASTING:
            raise _forbidden(
                _BROADCAST,
                f"the consumer group[{fields.consumer_group}] can not consume by broadcast way",
            )
        found = online.subscription(connection, fields.topic)
        if found is None:
            raise Refusal(
                ResponseCode.SUBSCRIPTION_NOT_EXIST,
                f"the consumer's subscription not exist: {fields.consumer_group} has not "
                f"subscribed to {fields.topic}; do its members subscribe differently?",
            )
        if found.sub_version < fields.sub_version:
            raise Refusal(
                ResponseCode.SUBSCRIPTION_NOT_LATEST, "the consumer's subscription not latest"
            )
        return found

    # -- reading ---------------------------------------------------------------------------------

    def _answer_or_hold(self, pull: _Pull, offset: int) -> Response | None:
        result = self._read(pull, offset)
        if self._may_come(result, offset) and self._may_hold(pull):
            at = offset if self._is_unknown(result, offset) else result.next_offset
            if self._hold(pull, at):
                return None
        return self._response(pull, result)

    def _read(self, pull: _Pull, offset: int) -> ReadResult:
        fields, config = pull.fields, self._context.config
        count = max(1, min(fields.max_msg_nums, config.pull_count, PULL_COUNT_MAX))
        size = min(fields.max_msg_bytes or config.pull_bytes, config.pull_bytes, PULL_BYTES_MAX)
        result = self._read_at_most(pull, offset, count, size)
        if result.count and self._is_old(result):
            # Reading from disk holds everybody up: take less at a time.
            count, size = min(count, config.pull_count_old), min(size, config.pull_bytes_old)
            return self._read_at_most(pull, offset, count, size)
        return result

    def _read_at_most(self, pull: _Pull, offset: int, count: int, size: int) -> ReadResult:
        store, topic, queue_id = self._context.store, pull.fields.topic, pull.fields.queue_id
        if pull.filter is not None:
            return read_matching(store, topic, queue_id, offset, count, size, pull.filter)
        return store.read(
            topic, queue_id, offset,
            count_max=count, bytes_max=size, tag_hashes=pull.tag_hashes,
        )  # fmt: skip

    def _is_old(self, result: ReadResult) -> bool:
        return result.behind_bytes > _MEMORY_BYTES * self._context.config.memory_percent // 100

    def _may_come(self, result: ReadResult, offset: int) -> bool:
        """Whether what is asked for may be here in a moment."""
        upstream = self._context.upstream
        if upstream is None:
            return _is_at_end(result, offset)
        # A slave's log may be behind: what it lacks its master may have. Without a master it comes
        # no sooner elsewhere.
        return not upstream.is_following and (
            _is_at_end(result, offset) or self._is_unknown(result, offset)
        )

    def _is_unknown(self, result: ReadResult, offset: int) -> bool:
        """Whether a slave has nothing at an offset and must not say where else to go on."""
        return (
            self._context.upstream is not None
            and not self._context.config.offset_check_in_slave
            and _code(result.status, offset) is ResponseCode.PULL_OFFSET_MOVED
        )

    def _slave_code(self, pull: _Pull, result: ReadResult, code: ResponseCode) -> ResponseCode:
        """A slave that finds nothing sends its reader to the master, if there is one."""
        upstream = self._context.upstream
        if upstream is None or result.count:
            return code
        if upstream.is_following:
            return ResponseCode.PULL_RETRY_IMMEDIATELY
        unknown = self._is_unknown(result, pull.fields.queue_offset)
        return ResponseCode.PULL_NOT_FOUND if unknown else code

    def _response(self, pull: _Pull, result: ReadResult) -> Response:
        fields, stats = pull.fields, self._context.stats
        code = self._slave_code(pull, result, _code(result.status, fields.queue_offset))
        if self._is_unknown(result, fields.queue_offset):
            result = msgspec.structs.replace(result, next_offset=fields.queue_offset)
        if result.count:
            key = f"{fields.topic}@{fields.consumer_group}"
            stats.meter(GROUP_GET_NUMS, key).total += result.count
            stats.meter(GROUP_GET_SIZE, key).total += result.size
            stats.got.total += result.count
            stats.got_bytes.total += result.size
            stats.pulls_found.total += 1
        else:
            stats.pulls_missed.total += 1
        self._context.offsets.pulled(
            fields.consumer_group, fields.topic, fields.queue_id, result.next_offset
        )
        return Response(code, result.status.value, self._answer_fields(pull, result), result.slices)

    def _answer_fields(self, pull: _Pull, result: ReadResult) -> dict[str, str]:
        group, context = pull.group, self._context
        suggested = group.broker_id
        may_suggest = context.config.slave_reads or context.upstream is not None
        if may_suggest and self._is_old(result):
            suggested = group.which_broker_when_consume_slowly
        return {
            "suggestWhichBrokerId": str(suggested),
            "nextBeginOffset": str(result.next_offset),
            "minOffset": str(result.min_offset),
            "maxOffset": str(result.max_offset),
            "topicSysFlag": "0",
            "groupSysFlag": str(group.group_sys_flag),
        }

    def _moved(self, pull: _Pull, offset: int) -> Response:
        """An operator wants the group to go on elsewhere."""
        store, fields = self._context.store, pull.fields
        result = ReadResult(
            status=ReadStatus.OFFSET_OVERFLOW_BADLY,
            next_offset=offset,
            min_offset=store.min_offset(fields.topic, fields.queue_id),
            max_offset=store.max_offset(fields.topic, fields.queue_id),
        )
        return Response(
            ResponseCode.PULL_OFFSET_MOVED, "OFFSET_RESET", self._answer_fields(pull, result)
        )

    # -- waiting ---------------------------------------------------------------------------------

    def _may_hold(self, pull: _Pull) -> bool:
        return pull.fields.sys_flag & SUSPEND != 0 and not pull.command.is_oneway

    def _is_leaderless(self) -> bool:
        quorum = self._context.quorum
        return quorum is not None and not quorum.is_following

    def _hold(self, pull: _Pull, offset: int) -> bool:
        config, fields = self._context.config, pull.fields
        wait_ms = config.short_polling_ms
        if config.long_polling:
            longest_ms = LEADERLESS_MS_MAX if self._is_leaderless() else SUSPEND_MS_MAX
            wait_ms = max(0, min(fields.suspend_timeout_millis, longest_ms))
        deadline = asyncio.get_running_loop().time() + wait_ms / 1000
        queue = queue_key(fields.topic, fields.queue_id)
        at = offset
        # What a pull that waits keeps here must not grow with what its client sent.
        pull.command.body, pull.command.encoded_fields = b"", _NO_FIELDS
        fields.subscription = ""

        def retry(waiting: WaitingPull, last: bool) -> bool:
            nonlocal at
            answer = self._retried(pull, at, last=last)
            if isinstance(answer, int):
                at = answer
                return False
            pull.command.held = True
            waiting.connection.answer(pull.command, answer)
            return True

        return self._context.waiting_pulls.hold(
            WaitingPull(pull.connection, queue, deadline, retry)
        )

    def _retried(self, pull: _Pull, offset: int, *, last: bool) -> Response | int:
        """The answer to a pull that waited, or from where it goes on waiting. What does not match
        its tags is passed over, so that it is not looked at again."""
        fields = pull.fields
        group = self._context.groups.get(fields.consumer_group)
        moved = self._context.offsets.take_reset(
            fields.consumer_group, fields.topic, fields.queue_id
        )
        if moved is not None:
            return self._moved(pull, moved)
        result = self._read(pull, offset)
        if not last and group is not None and not self._is_leaderless():
            if self._may_come(result, offset):
                return offset
            if result.status is ReadStatus.NO_MATCHED_MESSAGE and (
                result.next_offset >= result.max_offset
            ):
                return result.next_offset
        return self._response(pull, result)


def _carried(fields: PullFields) -> SubscriptionData:
    """The subscription that stands in the request itself."""
    if fields.expression_type == SQL92:
        return SubscriptionData(fields.topic, fields.subscription, expression_type=SQL92)
    try:
        return tag_subscription(fields.topic, fields.subscription, fields.sub_version)
    except ValueError as error:
        raise _unreadable(error) from None


def _tag_hashes(subscription: SubscriptionData) -> frozenset[int] | None:
    try:
        return subscription.tag_hashes()
    except ValueError as error:
        raise _unreadable(error) from None


def _unreadable(error: ValueError) -> Refusal:
    return Refusal(
        ResponseCode.SUBSCRIPTION_PARSE_FAILED,
        f"parse the consumer's subscription failed: {error}",
    )


def _is_at_end(result: ReadResult, offset: int) -> bool:
    """Nothing there yet, but the reader is where the next message will come."""
    if result.status is ReadStatus.OFFSET_OVERFLOW_ONE:
        return True
    return (
        result.status in (ReadStatus.NO_MATCHED_LOGIC_QUEUE, ReadStatus.NO_MESSAGE_IN_QUEUE)
        and offset == 0
    )


def _code(status: ReadStatus, offset: int) -> ResponseCode:
    code = _CODES.get(status)
    if code is not None:
        return code
    # No queue, or an empty one: only its beginning is a place to wait at.
    return ResponseCode.PULL_OFFSET_MOVED if offset else ResponseCode.PULL_NOT_FOUND


def _forbidden(kind: str, remark: str) -> Refusal:
    return Refusal(ResponseCode.NO_PERMISSION, remark, {"forbiddenType": kind})
