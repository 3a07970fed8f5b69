"""What a slave copies from its master beside the log: topics, groups, and how far everybody is.

Topics and groups are taken over at once. Progress (of consumers, delays and timers) is only when
our log has all that the master's had when it told: else messages that were delivered there, and did
not come here, would be passed over by whoever takes over.
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, Generic, NamedTuple, TypeVar

import msgspec

from cometmq.protocol.codes import RequestCode, ResponseCode
from cometmq.protocol.command import Command, MalformedFields, Request
from cometmq.protocol.fastjson import decode_body
from cometmq.protocol.group_config import GroupConfigs
from cometmq.protocol.scan import split_queue_key
from cometmq.protocol.topic_config import TopicConfigs
from cometmq.replication.follower import Follower
from cometmq.replication.log_check import log_range
from cometmq.store.disk import Disk
from cometmq.store.errors import WaitTimeout
from cometmq.transport.connection import Connection
from cometmq.transport.errors import TransportError

from ..context import Context
from ..delays import DelayProgress, Delays
from ..offsets import OffsetTables
from .timer_progress import keep_timers

log = logging.getLogger(__name__)
COPY_INTERVAL_S: Final = 10.0
HASTE_S: Final = 1.0
"""How soon it is done again when something unknown shows up."""
ASK_TIMEOUT_S: Final = 5.0
CATCH_UP_MS: Final = 5000
"""How long our log may take to have what the master had; then the next round is waited for."""
PAGE: Final = 1000
PAGES_MAX: Final = 1000


Table = TypeVar("Table", TopicConfigs, GroupConfigs)


class _PageFields(msgspec.Struct, rename="camel"):
    """Brokers before 5.3 know no pages: they give everything at once, and no number."""

    total_topic_num: int | None = None
    total_group_num: int | None = None

    @property
    def total(self) -> int | None:
        return self.total_group_num if self.total_topic_num is None else self.total_topic_num


class _Paged(NamedTuple, Generic[Table]):
    """A table that a broker tells page by page."""

    code: RequestCode
    kind: type[Table]
    what: str
    fields: Callable[[int], dict[str, int]]
    """That ask for the page which begins behind so many entries."""
    parts: Sequence[str]
    """Its dictionaries; the first one is what is counted."""


_TOPICS: Final = _Paged(
    RequestCode.GET_ALL_TOPIC_CONFIG, TopicConfigs, "topics",
    lambda behind: {"topicSeq": behind, "maxTopicNum": PAGE}, ("topic_config_table",),
)  # fmt: skip
_GROUPS: Final = _Paged(
    RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG, GroupConfigs, "groups",
    lambda behind: {"groupSeq": behind, "maxGroupNum": PAGE},
    ("subscription_group_table", "forbidden_table"),
)  # fmt: skip


class _Progress(msgspec.Struct):
    offsets: OffsetTables
    delays: DelayProgress
    timers: bytes | None
    timer_metrics: bytes | None


class Copies:
    def __init__(
        self,
        context: Context,
        follower: Follower,
        delays: Delays,
        disk: Disk,
        interval_s: float = COPY_INTERVAL_S,
    ) -> None:
        self._context = context
        self._follower = follower
        self._delays = delays
        self._disk = disk
        self._interval_s = interval_s
        self._hurry = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._is_well = True
        self.rounds = 0
        """How often everything was copied."""

    def start(self) -> None:
        self._task = asyncio.create_task(self._keep())

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    def hurry(self) -> None:
        """Something is new at the master."""
        self._hurry.set()

    def arrived(self, queues: Iterable[bytes]) -> None:
        """These queues got messages; a topic that is not known here was made at the master."""
        if not self._hurry.is_set():
            topics = self._context.topics
            if any(topics.get(split_queue_key(queue)[0]) is None for queue in queues):
                self.hurry()

    async def _keep(self) -> None:
        while True:
            self._hurry.clear()
            await self._try()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._interval_s):
                    await asyncio.sleep(min(HASTE_S, self._interval_s))
                    await self._hurry.wait()

    async def _try(self) -> None:
        # A slave whose log is not the master's has no use for its tables either.
        if self._follower.link is None or self._follower.master_address is None:
            return
        try:
            await self.copy(self._follower.master_address)
            self._is_well = True
        except WaitTimeout as error:
            log.info("the master's progress is not taken over yet: %s", error)
        except (TransportError, MalformedFields, OSError) as error:
            if self._is_well:
                log.warning("the master's tables cannot be copied: %s; trying again", error)
            self._is_well = False

    async def copy(self, address: str) -> None:
        """Copy everything once. WaitTimeout when our log is too far behind."""
        connection = await self._follower.dial(address)
        try:
            self._take_topics(await _table(connection, _TOPICS))
            self._context.groups.copy(await _table(connection, _GROUPS))
            progress = await self._progress(connection)
            end = (await log_range(connection)).end
        finally:
            connection.close()
        self._follower.told_end = end
        await self._context.store.dispatched.reached(end, CATCH_UP_MS)
        self._take_progress(progress, end)
        self.rounds += 1

    def _take_topics(self, told: TopicConfigs) -> None:
        context = self._context
        for name in context.topics.copy(told):
            # Its queues stay until the log is gone: a table is lost more easily than restored.
            log.info("topic %s is deleted at the master", name)
            context.offsets.forget_topic(name)

    # -- progress --------------------------------------------------------------------------------

    async def _progress(self, connection: Connection) -> _Progress:
        offsets = await _ask(connection, RequestCode.GET_ALL_CONSUMER_OFFSET)
        delays = await _ask(connection, RequestCode.GET_ALL_DELAY_OFFSET)
        return _Progress(
            decode_body(offsets.body, OffsetTables, "table of offsets"),
            decode_body(delays.body, DelayProgress, "progress of delays"),
            # Of a broker that has no timers, or is older than they are, there is nothing to copy.
            await _ask_if_there(connection, RequestCode.GET_TIMER_CHECK_POINT),
            await _ask_if_there(connection, RequestCode.GET_TIMER_METRICS),
        )

    def _take_progress(self, progress: _Progress, log_end: int) -> None:
        """Take over how far the master was, no later than when its log ended at `log_end`."""
        context, root = self._context, self._context.store.config.root
        context.offsets.merge(progress.offsets)
        self._delays.copy(progress.delays)
        keep_timers(context, self._disk, progress.timers, log_end)
        if progress.timer_metrics is not None:
            self._disk.write_whole(root / "config" / "timermetrics", progress.timer_metrics)


async def _table(connection: Connection, paged: _Paged[Table]) -> Table:
    found = paged.kind()
    for _ in range(PAGES_MAX):
        count = len(getattr(found, paged.parts[0]))
        answer = await _ask(
            connection, paged.code, **paged.fields(count), dataVersion=_version_text(found)
        )
        page = decode_body(answer.body, paged.kind, f"table of {paged.what}")
        if count and page.data_version == found.data_version:
            for part in paged.parts:
                setattr(page, part, getattr(found, part) | getattr(page, part))
        found = page
        total = answer.fields(_PageFields).total
        if total is None or len(getattr(found, paged.parts[0])) >= total:
            return found
    raise TransportError(f"{connection.peer} does not come to the end of its {paged.what}")


def _version_text(found: TopicConfigs | GroupConfigs) -> str:
    """Which state the pages so far are of; nothing before the first."""
    version = found.data_version
    return msgspec.json.encode(version).decode() if version.counter or version.timestamp else ""


async def _ask(connection: Connection, code: int, **fields: Any) -> Command:
    answer = await _answer(connection, code, fields)
    if answer.code != ResponseCode.SUCCESS:
        raise TransportError(f"{connection.peer}: {answer.remark or f'answer {answer.code}'}")
    return answer


async def _ask_if_there(connection: Connection, code: int) -> bytes | None:
    answer = await _answer(connection, code, {})
    return bytes(answer.body) if answer.code == ResponseCode.SUCCESS else None


async def _answer(connection: Connection, code: int, fields: dict[str, Any]) -> Command:
    texts = {name: str(value) for name, value in fields.items()}
    return await connection.request(Request(code, texts), ASK_TIMEOUT_S)
