"""Listens to streaming queries: tells how far behind they are and what was lost, and commits.

    listener = attach(spark, Listener(on_report=print, prometheus_file="/var/lib/…/spark.prom"))

Spark tells of a batch when it is durable, so then its consumer group may know (`consumerGroup` with
`commitGroupOffsets`), the last batch included. Spark's threads never wait here: events are put
aside for a thread of ours, at most so many, and a query does not notice when that fails.
`cometmq.spark.session` attaches one that logs and commits.
"""

import atexit
import logging
import os
import threading
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from pyspark import SparkContext
from pyspark.sql.streaming.listener import JStreamingQueryListener, StreamingQueryListener

from cometmq.protocol.message_queue import MessageQueue

from .connection import checked_connection
from .group_follower import GroupFollower
from .session import is_stopped
from .stream_gauges import StreamGauges
from .stream_report import Loss, Report, SourceProgress, batch_told, report_of, sources_of
from .topic.offsets import QueueRange

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

log = logging.getLogger(__name__)
EVENTS_MAX: Final = 1000
"""That wait for our thread; of more, the oldest are left out: later ones say what they said."""
RUNS_MAX: Final = 1000
RETRY_S: Final = 2.0
END_TIMEOUT_S: Final = 10.0
EXIT_WAIT_S: Final = 3.0
"""When the process ends: for what Spark has still to say of queries that have ended just now."""


class _Started(NamedTuple):
    run_id: str


class _Ended(NamedTuple):
    run_id: str


class Listener(StreamingQueryListener):
    def __init__(
        self,
        *,
        on_report: Callable[[Report], None] | None = None,
        prometheus_file: str | os.PathLike[str] | None = None,
        connection: Mapping[str, str] | None = None,
    ) -> None:
        """`connection`: what of the source's options is needed to reach its cluster beside the
        NameServer's address, which it says itself: `accessKey`, `secretKey`, `tls`, … BadOption if
        it cannot be used."""
        self._on_report = on_report
        self._gauges = StreamGauges(Path(prometheus_file)) if prometheus_file else None
        self._groups = GroupFollower(checked_connection(connection or {}))
        self._events: deque[Any] = deque(maxlen=EVENTS_MAX)
        self._changed = threading.Condition()
        self._running: dict[str, dict[MessageQueue, QueueRange]] = {}
        """Runs that have not ended, with what each was last said to have lost in a queue."""
        self._ended: deque[str] = deque(maxlen=RUNS_MAX)
        self._thread: threading.Thread | None = None
        self._is_closing = False
        self._called: Any = None

    # -- what Spark calls ------------------------------------------------------------------------

    def onQueryStarted(self, event: Any) -> None:  # noqa: N802 - Spark's name, as those below
        self._put(_Started(str(event.runId)))

    def onQueryProgress(self, event: Any) -> None:  # noqa: N802
        self.hear(event.progress.json)

    def onQueryIdle(self, event: Any) -> None:  # noqa: N802
        pass

    def onQueryTerminated(self, event: Any) -> None:  # noqa: N802
        self._put(_Ended(str(event.runId)))

    def hear(self, progress: str) -> None:
        """The same, as JSON."""
        self._put(progress)

    @property
    def _jlistener(self) -> Any:
        """Under this name PySpark looks for what Java shall call."""
        if self._called is None:
            jvm: Any = SparkContext._jvm  # noqa: SLF001 - Python has no name for it
            self._called = jvm.PythonStreamingQueryListenerWrapper(_Called(self))
        return self._called

    # -- what users call -------------------------------------------------------------------------

    def settled(self, query: "StreamingQuery", timeout_s: float = 30.0) -> bool:
        """Wait until all that a query which has ended did is told and committed; whether it is."""
        run_id = str(query.runId)
        with self._changed:
            return self._changed.wait_for(lambda: run_id in self._ended, timeout_s)

    def close(self) -> None:
        """Do what is to be done, and end. What comes then is left out."""
        with self._changed:
            self._is_closing = True
            self._changed.notify_all()
            thread = self._thread
        atexit.unregister(self._finish)
        if thread is not None:
            thread.join(END_TIMEOUT_S)

    def _finish(self) -> None:
        """The process ends: a script that ran a query has its last batch committed."""
        with self._changed:
            self._changed.wait_for(lambda: not (self._events or self._running), EXIT_WAIT_S)
        self.close()

    # -- our thread ------------------------------------------------------------------------------

    def _put(self, event: Any) -> None:
        with self._changed:
            if self._is_closing:
                return
            self._events.append(event)
            if self._thread is None:
                self._thread = threading.Thread(
                    target=self._run, name="cometmq-spark-listener", daemon=True
                )
                self._thread.start()
                atexit.register(self._finish)
            self._changed.notify_all()

    def _run(self) -> None:
        ended: list[str] = []
        while (events := self._take()) is not None:
            for event in events:
                if isinstance(event, _Started):
                    self._running[event.run_id] = {}
                    self._guarded(self._groups.open)
                elif isinstance(event, _Ended):
                    ended.append(event.run_id)
                else:
                    self._guarded(self._handle, event)
            self._guarded(self._groups.commit)
            if not self._groups.is_behind:
                self._tell_ended(ended)
                ended = []
        self._guarded(self._groups.close)

    def _take(self) -> list[Any] | None:
        """What has come, if anything; None when it is time to end."""
        with self._changed:
            wait_s = RETRY_S if self._groups.is_behind else None
            self._changed.wait_for(lambda: self._events or self._is_closing, wait_s)
            events = list(self._events)
            self._events.clear()
            return None if self._is_closing and not events else events

    def _tell_ended(self, runs: list[str]) -> None:
        for run in runs:
            self._running.pop(run, None)
            if self._gauges is not None:
                self._guarded(self._gauges.end, run)
        if runs and not self._running:
            self._guarded(self._groups.close)
        with self._changed:
            self._ended.extend(runs)
            self._changed.notify_all()

    def _handle(self, progress: str) -> None:
        batch = batch_told(progress)
        sources = sources_of(batch)
        if not sources:
            return
        for source in sources:
            self._groups.put(source)
        lost = self._lost(batch.run_id, sources)
        self._publish(report_of(batch, sources, lost))

    def _lost(self, run_id: str, sources: Iterable[SourceProgress]) -> list[Loss]:
        """What was not told before."""
        known = self._running.setdefault(run_id, {})
        lost = []
        for source in sources:
            for part in source.notes.lost_ranges() if source.notes else ():
                before = known.get(part.queue)
                if (new := part.behind(before)).size > 0:
                    known[part.queue] = part.joined(before)
                    lost.append(Loss(new, is_certain=True))
            lost += self._groups.overtaken(source)
        return lost

    def _publish(self, report: Report) -> None:
        for loss in report.lost:
            log.error("query %s, batch %d: %s", report.name, report.batch_id, loss)
        log.info("%s", report)
        if self._gauges is not None:
            self._gauges.add(report)
        if self._on_report is not None:
            self._on_report(report)

    def _guarded(self, work: Callable[..., None], *arguments: Any) -> None:
        """Whatever fails here, the next event is heard."""
        try:
            work(*arguments)
        except Exception:
            log.exception("a listener of streaming queries failed")


class _Called(JStreamingQueryListener):
    """Takes a batch's progress from Java as one text. PySpark asks for its parts one by one, finds
    the end of each list by an exception, and looks through all jars for what kind that is: more
    CPU time than planning the batch takes."""

    pylistener: Listener

    def onQueryProgress(self, jevent: Any) -> None:  # noqa: N802 - Spark's name
        self.pylistener.hear(jevent.progress().json())


_attached: "dict[SparkSession, Listener]" = {}
"""Of sessions that run, and of those that were stopped since the last one was attached."""


def attach(spark: "SparkSession", listener: Listener | None = None) -> Listener:
    """Have a listener hear of a session's queries, in place of the one before. Without one: that
    which is there, else a new one that logs and commits. Those of stopped sessions end."""
    _end_stopped(listener)
    before = _attached.get(spark)
    if before is not None and (listener is None or listener is before):
        return before
    if before is not None:
        detach(spark)
    listener = listener or Listener()
    spark.streams.addListener(listener)
    _attached[spark] = listener
    return listener


def _end_stopped(needed: Listener | None) -> None:
    """One listener may hear of several sessions, and of one after the other."""
    for session in [one for one in _attached if is_stopped(one)]:
        left = _attached.pop(session)
        if left is not needed and left not in _attached.values():
            left.close()


def detach(spark: "SparkSession") -> None:
    """End the listener of a session, if it has one."""
    listener = _attached.pop(spark, None)
    if listener is not None:
        spark.streams.removeListener(listener)
        listener.close()
