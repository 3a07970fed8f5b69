"""A report on topics and groups: throughput, lag, latency, sizes, tags.

Figures come from the messages themselves, from the offsets of groups and, where clients trace, from
their reports: of a running cluster, or of a broker's files alone. Nothing is written or committed.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

import msgspec

from cometmq.client.admin.traces import TRACE_TOPIC
from cometmq.protocol.names import RETRY_PREFIX

from ..connection import CONNECTION
from ..errors import BadOption
from . import report_frames, report_traces
from .failures import plainly
from .report_figures import ConsumeTrace, GroupFigures, Report, SendTrace, Timeline, TopicFigures
from .report_sources import ClusterSource, Source, StoreSource
from .sessions import when_needed

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from .sessions import Given

Tell = Callable[[str], object]
"""Called with what is being done now."""


def report(
    namesrv: str = "",
    *,
    store: str = "",
    topics: Sequence[str] = (),
    groups: Sequence[str] = (),
    since_ms: int | None = None,
    until_ms: int | None = None,
    options: Mapping[str, str] | None = None,
    spark: "Given" = None,
    tell: Tell = lambda _: None,
) -> Report:
    """The figures of a cluster, or of one broker's `store` directory without any cluster.

    `topics` and `groups`: only these; else all but the system's own. `since_ms` and `until_ms`
    choose messages by when they were stored; where `topics` are given, consumptions are those of
    such messages. `options` are those of the source that say how to reach the cluster, as `tls` or
    `accessKey`. `report_page.as_page` makes a page of it. Errors are those of
    `cometmq.spark.errors`.
    """
    if bool(namesrv) == bool(store):
        raise BadOption("say what to report on: either namesrv or store")
    if since_ms is not None and until_ms is not None and since_ms >= until_ms:
        raise BadOption("since is not before until: no message can lie between them")
    wrong = [name for name in options or {} if name not in CONNECTION[1:]]
    if wrong:
        raise BadOption(f"{wrong[0]}: a report takes {', '.join(CONNECTION[1:])}")
    with plainly():
        sessions = when_needed(spark, "cometmq-report")
        if store:
            source: Source = StoreSource(sessions, store, since_ms, until_ms)
        else:
            where = {**(options or {}), "namesrvAddr": namesrv}
            source = ClusterSource(sessions, where, since_ms, until_ms)
        with source:
            return _told(source, topics, groups, (since_ms, until_ms), tell)


def _told(
    source: Source,
    topics: Sequence[str],
    groups: Sequence[str],
    time_range: tuple[int | None, int | None],
    tell: Tell,
) -> Report:
    tell("looking for topics")
    chosen = source.topics(topics)
    figures, timeline, sends, consumptions = _counted(source, chosen, topics, groups, tell)
    tell("asking for offsets of groups")
    found = _with_retries(source, source.groups(chosen, groups))
    return Report(
        source.shown, time.time_ns() // 1_000_000, *time_range, figures, timeline, found, sends,
        consumptions, _notes(source, chosen, found, groups),
    )  # fmt: skip


_Counted = tuple[list[TopicFigures], Timeline | None, list[SendTrace], list[ConsumeTrace]]


def _counted(
    source: Source, topics: list[str], asked: Sequence[str], groups: Sequence[str], tell: Tell
) -> _Counted:
    """`asked`: topics that were named. Without any, all that consumers report counts."""
    if not topics:
        return [], None, [], []
    frame = source.messages(topics, report_frames.COLUMNS)
    with report_frames.small(frame) as messages:
        tell(f"counting messages of {len(topics)} topics")
        figures = report_frames.topic_figures(messages)
        tell("sorting them by time")
        timeline = report_frames.timeline(messages, figures)
        tell("reading traces")
        sends, consumptions = _traces(source, messages, asked, groups)
        sends = [trace for trace in sends if trace.topic in topics]
    return figures, timeline, sends, consumptions


def _traces(
    source: Source, messages: "DataFrame", asked: Sequence[str], groups: Sequence[str]
) -> tuple[list[SendTrace], list[ConsumeTrace]]:
    if not source.has(TRACE_TOPIC):
        return [], []
    events = report_traces.events(source.messages([TRACE_TOPIC], report_traces.COLUMNS)).cache()
    try:
        sends = report_traces.send_traces(events)
        consumed = report_traces.consumptions_of(events, messages) if asked else events
        consumptions = report_traces.consume_traces(consumed, messages)
    finally:
        events.unpersist()
    return sends, [trace for trace in consumptions if not groups or trace.group in groups]


def _with_retries(source: Source, groups: list[GroupFigures]) -> list[GroupFigures]:
    topics = {group.group: RETRY_PREFIX + group.group for group in groups}
    there = [topic for topic in topics.values() if source.has(topic)]
    counts = report_frames.counts(source.messages(there, ("topic",))) if there else {}
    return [
        msgspec.structs.replace(group, retries=counts.get(topics[group.group], 0))
        for group in groups
    ]


def _notes(
    source: Source, topics: list[str], found: list[GroupFigures], groups: Sequence[str]
) -> list[str]:
    notes = []
    if not source.has(TRACE_TOPIC):
        notes.append(
            f"No client reports traces ({TRACE_TOPIC} is not there): the cost of sends and the "
            "wait for consumers are not known. Clients report them when message trace is on."
        )
    unknown = sorted(set(groups) - {group.group for group in found if group.queues})
    if unknown:
        notes.append(f"No offsets in these topics: group {', '.join(unknown)}.")
    if not topics:
        notes.append("There is no topic but the system's own.")
    return notes
