"""Topics, groups, consumer offsets and progress of delays, replicated with the log.

The leader writes what changes as records: topics and groups before the messages that need them,
offsets in small batches, so that few messages are consumed again after a failover. Every member
applies records when they are confirmed. A leader begins with a snapshot, and writes one into each
file of the log: whoever begins at any file has everything.
"""

import asyncio
import logging
from collections.abc import Iterable
from typing import Final

import msgspec

from cometmq.protocol.codes import ResponseCode
from cometmq.protocol.message import Message, StoredMessage
from cometmq.protocol.names import RAFT_TABLES_TOPIC as TABLES_TOPIC
from cometmq.protocol.record import iter_records
from cometmq.protocol.scan import queue_key
from cometmq.replication.quorum.quorum import Quorum
from cometmq.store.config_file import ConfigFile
from cometmq.store.disk import Disk
from cometmq.transport.connection import Refusal

from ..context import Context
from ..delays import DelayProgress
from ..duties import Duties, keep_delays
from ..inbox import Inbox
from ..persistent import Persistent
from ..slave.timer_progress import keep_timers
from .table_records import TableChange, Tables, decode, encode, joined

log = logging.getLogger(__name__)
OFFSETS_BEHIND_MAX: Final = 50
"""Messages that groups may have consumed before their offsets are written at once."""
OFFSETS_INTERVAL_S: Final = 0.1
OFFSETS_HASTE_S: Final = 0.001
RETRY_S: Final = 0.5
PART_BYTES_MAX: Final = 256 * 1024
LOG_BYTES_UNSAVED_MAX: Final = 16 * 1024 * 1024
"""How much of the log a new leader has to look through for delays and timers at most."""
_QUEUE = queue_key(TABLES_TOPIC, 0)


class _Saved(msgspec.Struct):
    """`raftTables.json`: what else a member keeps beside its tables."""

    applied: int = 0
    """The offset in the topic of changes up to which they are applied."""
    delays: DelayProgress | None = None
    timers: bytes | None = None
    addresses: dict[str, str] = {}


class ReplicatedTables(Persistent):
    def __init__(
        self, context: Context, inbox: Inbox, quorum: Quorum, disk: Disk, file: ConfigFile
    ) -> None:
        super().__init__(file)
        self._context = context
        self._inbox = inbox
        self._quorum = quorum
        self._disk = disk
        self._state: _Saved = self.load_as(_Saved) or _Saved()
        self._parts: list[TableChange] = []
        """Of a snapshot whose last part has not come yet."""
        self._parts_at = 0
        self._next = self._state.applied
        self._duties: Duties | None = None
        """Those of a leader; only a leader writes."""
        self._timer: asyncio.TimerHandle | None = None
        self._snapshot_file = -1
        self._progress: object = None
        self._progress_at = 0
        context.topics.news = set()
        context.groups.news = set()
        context.offsets.begin_news()
        quorum.on_addresses = self.changed

    # -- applying --------------------------------------------------------------------------------

    @property
    def addresses(self) -> dict[str, str]:
        """Where members are, as far as the log has told."""
        return self._state.addresses

    def content(self) -> _Saved:
        return self._state

    def save(self) -> None:
        """Behind the tables themselves: what they lack is applied again."""
        applied = self._parts_at if self._parts else self._next
        if applied != self._state.applied:
            self._state.applied = applied
            self.touch()
        super().save()

    def arrived(self, queues: Iterable[bytes]) -> None:
        if _QUEUE in queues:
            self.catch_up()

    def catch_up(self) -> None:
        """Apply all confirmed changes that are not yet."""
        store = self._context.store
        while self._next < store.max_offset(TABLES_TOPIC, 0):
            self._next = max(self._next, store.min_offset(TABLES_TOPIC, 0))
            result = store.read(TABLES_TOPIC, 0, self._next, bytes_max=PART_BYTES_MAX * 4)
            for piece in result.slices:
                for record in iter_records(piece):
                    self._take(record)
            if result.next_offset <= self._next:
                return
            self._next = result.next_offset

    def _take(self, record: StoredMessage) -> None:
        if self._duties is not None:
            return  # A leader wrote it itself.
        change = decode(record.body)
        if change.parts:
            self._take_part(change, record.queue_offset)
        else:
            self._apply(change, record.physical_offset)

    def _take_part(self, part: TableChange, offset: int) -> None:
        if part.part == 0:
            self._parts, self._parts_at = [], offset
        elif part.part != len(self._parts):
            self._parts = []  # The rest of one whose beginning is not here.
            return
        self._parts.append(part)
        if len(self._parts) == part.parts:
            self._replace(joined(self._parts))
            self._parts = []

    def _replace(self, tables: Tables) -> None:
        context = self._context
        for name in context.topics.copy(tables.topics):
            log.info("topic %s is not known to the leader", name)
        context.groups.copy(tables.groups)
        context.offsets.replace(tables.offsets)
        self._take_progress(tables.delays, tables.timers, tables.addresses)
        self._forget_news()

    def _apply(self, change: TableChange, physical_offset: int) -> None:
        context = self._context
        if change.topics_version is not None:
            context.topics.take(change.topics, change.topics_version)
            for name in (name for name, topic in change.topics.items() if topic is None):
                context.store.delete_topic(name, before=physical_offset)
        if change.groups_version is not None:
            context.groups.take(change.groups, change.forbidden, change.groups_version)
        if change.offsets:
            context.offsets.take(change.offsets)
        self._take_progress(change.delays, change.timers, change.addresses)
        self._forget_news()

    def _take_progress(
        self, delays: DelayProgress | None, timers: bytes | None, addresses: dict[str, str]
    ) -> None:
        state = self._state
        state.delays, state.timers = delays or state.delays, timers or state.timers
        if addresses and addresses != state.addresses:
            state.addresses = addresses
            self._quorum.know(addresses)
        self.touch()

    def _forget_news(self) -> None:
        """What came from the leader is no news of ours."""
        context = self._context
        context.topics.take_news()
        context.groups.take_news()
        context.offsets.take_news()

    # -- leading ---------------------------------------------------------------------------------

    def take_over(self) -> None:
        """Put the progress of delays and timers where they look for it. Everything is confirmed and
        dispatched, and they have not begun."""
        self.catch_up()
        self._parts = []
        context, state = self._context, self._state
        if state.delays is not None:
            keep_delays(context, self._disk, state.delays)
        keep_timers(context, self._disk, state.timers, context.store.appended.value)

    def lead(self, duties: Duties) -> None:
        """Begin to write, with everything there is."""
        self._duties = duties
        self._write_snapshot()

    def follow(self) -> None:
        """Write no more."""
        self._duties = None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def changed(self) -> None:
        """Topics or groups changed: they go into the log before anything that needs them."""
        if self._duties is not None and not self._write_news():
            self._write_soon(RETRY_S)

    def moved(self, messages: int) -> None:
        """Groups have consumed so many messages whose offsets are not written."""
        if self._duties is None:
            return
        hurry = messages >= OFFSETS_BEHIND_MAX
        self._write_soon(OFFSETS_HASTE_S if hurry else OFFSETS_INTERVAL_S)

    def _write_soon(self, wait_s: float) -> None:
        loop = asyncio.get_running_loop()
        if self._timer is not None:
            if self._timer.when() <= loop.time() + wait_s:
                return
            self._timer.cancel()
        self._timer = loop.call_later(wait_s, self._write_later)

    def note_progress(self) -> None:
        """Write how far delays and timers are, if there was anything to do for them; and a snapshot
        if the log goes on in another file."""
        if self._duties is None:
            return
        if self._log_file() != self._snapshot_file:
            self._write_snapshot()
        elif self._has_progressed(self._duties):
            self._note_progress(self._duties)
            self._put([TableChange(delays=self._duties.delays.now(), timers=self._timers_told())])

    def _has_progressed(self, duties: Duties) -> bool:
        """Whether a successor would have much to look through, or anything to count twice."""
        grown = self._context.store.appended.value - self._progress_at
        return self._progress != duties.progress() or grown > LOG_BYTES_UNSAVED_MAX

    def _note_progress(self, duties: Duties) -> None:
        self._progress = duties.progress()
        self._progress_at = self._context.store.appended.value

    def _write_later(self) -> None:
        self._timer = None
        self.changed()

    def _write_news(self) -> bool:
        context = self._context
        if context.offsets.is_all_new:
            return self._write_snapshot()
        topics, groups = context.topics.take_news(), context.groups.take_news()
        offsets = context.offsets.take_news()
        change = TableChange(offsets=offsets)
        if self._quorum.addresses != self._state.addresses:
            change.addresses = self._quorum.addresses
        if topics:
            change.topics = {name: context.topics.get(name) for name in topics}
            change.topics_version = context.topics.version
        if groups:
            change.groups = {name: context.groups.get(name) for name in groups}
            change.groups_version = context.groups.version
            change.forbidden = context.groups.content().forbidden_table
        if self._put([change]):
            self._state.addresses = self._quorum.addresses
            return True
        context.topics.bring_back(topics)
        context.groups.bring_back(groups)
        context.offsets.bring_back(offsets)
        return False

    def _write_snapshot(self) -> bool:
        assert self._duties is not None
        context = self._context
        tables = Tables(
            context.topics.content(),
            context.groups.content(),
            context.offsets.content(),
            self._duties.delays.now(),
            self._timers_told(),
            self._quorum.addresses,
        )
        bytes_max = min(PART_BYTES_MAX, context.store.config.commit_log_file_bytes // 4)
        file = self._log_file()
        if not self._put(tables.parts(bytes_max)):
            return False
        self._snapshot_file = file
        self._note_progress(self._duties)
        self._forget_news()
        return True

    def _timers_told(self) -> bytes | None:
        timers = self._duties.timers if self._duties is not None else None
        return timers.told() if timers is not None else None

    def _put(self, changes: list[TableChange]) -> bool:
        records = [Message(TABLES_TOPIC, 0, encode(change)) for change in changes]
        try:
            self._inbox.put(records, _told, may_wait=False)
        except Refusal as refusal:
            log.warning("tables are not replicated yet: %s", refusal)
            return False
        return True

    def _log_file(self) -> int:
        config, end = self._context.store.config, self._context.store.appended.value
        return end // config.commit_log_file_bytes


def _told(code: ResponseCode, remark: str | None) -> None:
    if code != ResponseCode.SUCCESS:
        log.info("a change of tables is not confirmed: %s", remark)
