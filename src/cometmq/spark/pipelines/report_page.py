"""A report as one HTML page that needs nothing else: no script, no font, no network. Pure."""

from collections.abc import Iterable, Sequence
from html import escape
from typing import Final

from .readable import DAY_MS, moment, number, short, short_moment, size, span, utc
from .report_charts import COLOURS, LABELS_MAX, Axis, Row, legend, lines, stacked_bars
from .report_figures import (
    GroupFigures,
    QueueLag,
    Report,
    Series,
    Spread,
    Timeline,
    TopicFigures,
)
from .report_style import STYLE

_STEPS: Final = (1, 2, 3, 5, 6, 10, 15, 20, 30)
"""Of how many bars one has its time written below; the clock's own steps."""
_OTHERS: Final = "all others"


def as_page(report: Report) -> str:
    parts = [
        _head(report), _tiles(report), _throughput(report.timeline), _latency(report),
        _topics(report.topics), _groups(report), _traces(report), _notes(report),
    ]  # fmt: skip
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        '<meta name="color-scheme" content="light dark">'
        f"<title>CometMQ report · {escape(report.source)}</title><style>{STYLE}</style></head>"
        f"<body><main>{''.join(parts)}</main></body></html>\n"
    )


# -- sections ------------------------------------------------------------------------------------


def _head(report: Report) -> str:
    since = moment(report.since_ms) if report.since_ms is not None else "the beginning"
    until = moment(report.until_ms) if report.until_ms is not None else "now"
    return (
        f"<header><h1>Messages of <code>{escape(report.source)}</code></h1>"
        f"<p>Stored from {since} until {until}. Made {moment(report.made_ms)}. "
        "All times are UTC.</p></header>"
    )


def _tiles(report: Report) -> str:
    timeline = report.timeline
    tiles = [
        ("messages", number(report.messages)),
        ("of bodies", size(report.bytes)),
        ("topics with messages", number(len(report.topics))),
        (f"messages {_per(timeline)} at most", number(_peak(timeline))) if timeline else None,
        ("consumer groups", number(len(report.groups))),
        ("messages not consumed yet", number(report.lag)),
    ]
    items = [
        f"<div><b>{escape(value)}</b><span>{escape(name)}</span></div>"
        for name, value in filter(None, tiles)
    ]
    return f'<section class="tiles">{"".join(items)}</section>'


def _throughput(timeline: Timeline | None) -> str:
    if timeline is None:
        return _section("Throughput", _empty("There is no message in this time."))
    series = _fewer(timeline.series)
    axis = _axis(timeline)
    per = _per(timeline)
    messages = [Row(one.topic, one.messages) for one in series]
    volumes = [Row(one.topic, one.bytes) for one in series]
    return _section(
        "Throughput",
        f"<h3>Messages {per}</h3>",
        stacked_bars(f"Messages {per}", messages, axis, short),
        f"<h3>Bytes of bodies {per}</h3>",
        stacked_bars(f"Bytes {per}", volumes, axis, size, base=1024),
        legend([one.topic for one in series]),
    )


def _latency(report: Report) -> str:
    timeline = report.timeline
    if timeline is None:
        return ""
    rows = [
        Row("half of the messages within", timeline.stored_after_p50_ms),
        Row("99 of 100 within", timeline.stored_after_p99_ms),
    ]
    return _section(
        "From birth to store",
        "<p>How long after its birth at the producer a message was stored. Both clocks count: "
        "where they differ, so do these figures. A delayed message counts with its delay.</p>",
        lines("From birth to store", rows, _axis(timeline), span),
        legend([row.name for row in rows]),
        _table(
            ("topic", "50 %", "90 %", "99 %", "longest"),
            [(topic.topic, *_spans(topic.stored_after_ms)) for topic in report.topics],
        ),
    )


def _topics(topics: Sequence[TopicFigures]) -> str:
    if not topics:
        return _section("Topics", _empty("No topic has a message in this time."))
    most = max(topic.messages for topic in topics)
    return _section(
        "Topics",
        _table(
            ("topic", "messages", "", "bytes", "queues used", "size 50 %", "size 99 %", "largest",
             "first", "last"),
            [
                (
                    topic.topic, number(topic.messages), _bar(topic.messages, most),
                    size(topic.bytes), number(topic.queues), size(topic.size.p50),
                    size(topic.size.p99), size(topic.size.max), short_moment(topic.first_ms),
                    short_moment(topic.last_ms),
                )
                for topic in topics
            ],
        ),
        "<h3>Tags</h3>",
        '<div class="texts">',
        _table(("topic", "tags, most frequent first"), [(t.topic, _tags(t)) for t in topics]),
        "</div>",
    )  # fmt: skip


def _groups(report: Report) -> str:
    if not report.groups:
        return _section(
            "Consumer groups",
            _empty("No consumer group has an offset in these topics: nobody has consumed yet."),
        )
    most = max(group.lag for group in report.groups)
    rows = [
        (
            group.group, number(group.lag), _bar(group.lag, most), _behind(group, report.made_ms),
            "–" if group.consume_tps is None else number(group.consume_tps),
            number(group.retries), number(group.dead_letters or 0),
        )
        for group in sorted(report.groups, key=lambda group: -group.lag)
    ]  # fmt: skip
    header = ("group", "lag", "", "behind by", "consumed per s", "retries", "dead letters")
    return _section(
        "Consumer groups",
        _table(header, rows),
        *(_queues(group, report.made_ms) for group in report.groups),
    )


def _queues(group: GroupFigures, made_ms: int) -> str:
    if not group.queues:
        return ""
    most = max(queue.lag for queue in group.queues)
    rows = [
        (
            queue.topic, queue.broker or "–", number(queue.queue), number(queue.end),
            number(queue.consumed), number(queue.lag), _bar(queue.lag, most),
            _queue_behind(queue, made_ms),
        )
        for queue in group.queues
    ]  # fmt: skip
    header = ("topic", "broker", "queue", "end", "consumed", "lag", "", "behind by")
    return (
        f"<details><summary>{escape(group.group)}: {number(group.lag)} messages behind in "
        f"{len(group.queues)} queues</summary>{_table(header, rows)}</details>"
    )


def _traces(report: Report) -> str:
    if not report.sends and not report.consumptions:
        return _section("Traces", _empty("No client has reported traces in this time."))
    sends = [
        (trace.topic, number(trace.sends), number(trace.failed), *_spans(trace.cost_ms))
        for trace in report.sends
    ]
    consumptions = [
        (
            trace.group, number(trace.consumptions), number(trace.failed),
            *_spans(trace.waited_ms), *_spans(trace.cost_ms),
        )
        for trace in report.consumptions
    ]  # fmt: skip
    spread = ("50 %", "90 %", "99 %", "longest")
    return _section(
        "Traces",
        "<h3>Cost of sends</h3>",
        _table(("topic", "sends", "failed", *spread), sends),
        "<h3>Consumption</h3><p>Waiting is from store to a group's first attempt.</p>",
        _table(
            ("group", "attempts", "failed", *(f"waited {part}" for part in spread),
             *(f"took {part}" for part in spread)),
            consumptions,
        ),
    )  # fmt: skip


def _notes(report: Report) -> str:
    if not report.notes:
        return ""
    items = "".join(f"<li>{escape(note)}</li>" for note in report.notes)
    return _section("Notes", f"<ul>{items}</ul>")


# -- parts ---------------------------------------------------------------------------------------


class _Html(str):
    """A cell that is markup already."""

    __slots__ = ()


def _section(title: str, *parts: str) -> str:
    return f"<section><h2>{title}</h2>{''.join(parts)}</section>"


def _empty(text: str) -> str:
    return f'<p class="empty">{escape(text)}</p>'


def _table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    head = "".join(f"<th>{escape(name)}</th>" for name in header)
    body = "".join(f"<tr>{''.join(map(_cell, row))}</tr>" for row in rows)
    if not body:
        return _empty("Nothing to show.")
    table = f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
    return f'<div class="wide">{table}</div>'


def _cell(value: str) -> str:
    return f"<td>{value if isinstance(value, _Html) else escape(value)}</td>"


def _bar(value: float, most: float) -> _Html:
    share = 100 * value / most if most else 0
    return _Html(f'<span class="bar"><i style="width:{share:.1f}%"></i></span>')


def _spans(spread: Spread | None) -> tuple[str, str, str, str]:
    if spread is None:
        return ("–",) * 4
    return span(spread.p50), span(spread.p90), span(spread.p99), span(spread.max)


def _tags(topic: TopicFigures) -> _Html:
    shown = [
        f"<span class=tag>{escape(tag.tag) or '<em>none</em>'} <b>{number(tag.messages)}</b></span>"
        for tag in topic.tags
    ]
    rest = topic.messages - topic.share_of_tags
    if rest:
        shown.append(f"<span class=tag><em>others</em> <b>{number(rest)}</b></span>")
    return _Html(" ".join(shown))


def _behind(group: GroupFigures, made_ms: int) -> str:
    late = [made_ms - q.consumed_to_ms for q in group.queues if q.lag and q.consumed_to_ms]
    return span(max(late)) if late else "–"


def _queue_behind(queue: QueueLag, made_ms: int) -> str:
    known = queue.lag and queue.consumed_to_ms
    return span(made_ms - queue.consumed_to_ms) if known else "–"


def _fewer(series: Sequence[Series]) -> list[Series]:
    """As many as there are colours; the last of them stands for all others."""
    if len(series) <= COLOURS:
        return list(series)
    rest = series[COLOURS - 1 :]
    others = Series(
        _OTHERS,
        [sum(column) for column in zip(*(one.messages for one in rest), strict=True)],
        [sum(column) for column in zip(*(one.bytes for one in rest), strict=True)],
    )
    return [*series[: COLOURS - 1], others]


def _axis(timeline: Timeline) -> Axis:
    form = "%H:%M:%S" if timeline.bucket_ms < 60_000 else "%H:%M"
    if timeline.bucket_ms >= DAY_MS:
        form = "%Y-%m-%d"
    elif timeline.bucket_ms * timeline.buckets > DAY_MS:
        form = "%m-%d %H:%M"
    numbers = range(timeline.buckets)
    labels = [utc(timeline.begin_ms(at)).strftime(form) for at in numbers]
    every = next(step for step in _STEPS if timeline.buckets <= step * LABELS_MAX)
    first = timeline.start_ms // timeline.bucket_ms
    return Axis(labels, [at for at in numbers if (first + at) % every == 0])


def _per(timeline: Timeline) -> str:
    one = {1000: "second", 60_000: "minute", 3_600_000: "hour", 86_400_000: "day"}
    return f"per {one.get(timeline.bucket_ms) or span(timeline.bucket_ms)}"


def _peak(timeline: Timeline) -> int:
    columns = zip(*(one.messages for one in timeline.series), strict=True)
    return max(map(sum, columns), default=0)
