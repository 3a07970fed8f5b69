"""A report tells of topics and groups what messages, offsets, traces and files tell."""

import datetime as dt
import html.parser
import re
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from cometmq.cli import spark_report
from cometmq.cli.main import main
from cometmq.client.admin.traces import traces_in
from cometmq.client.blocking import Admin, Producer
from cometmq.client.names import Message, SendResult
from cometmq.spark.errors import BadOption, SparkError
from cometmq.spark.pipelines.failures import plain
from cometmq.spark.pipelines.readable import counted, moment, number, short, size, span
from cometmq.spark.pipelines.report import report
from cometmq.spark.pipelines.report_charts import Axis, Row, lines, stacked_bars
from cometmq.spark.pipelines.report_figures import (
    BUCKETS_MAX,
    Report,
    Series,
    Spread,
    TagCount,
    Timeline,
    TopicFigures,
    bucket_ms,
)
from cometmq.spark.pipelines.report_page import as_page
from cometmq.testing import BlockingEmbeddedBroker, EmbeddedBroker

from .dead_letters import bury, send_back
from .streaming import until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

TAGS = ("created", "paid", "")
TRACES = "RMQ_SYS_TRACE_TOPIC"


class Shop:
    """A cluster of its own, in which two topics have messages and a group has consumed some."""

    def __init__(self, spark: "SparkSession", broker: BlockingEmbeddedBroker) -> None:
        self.spark = spark
        self.namesrv = broker.namesrv
        self.store = str(broker.directory / "broker-a")
        for topic in ("orders", "payments", TRACES):
            broker.create_topic(topic)
        with Producer(broker.namesrv, group="shop") as producer:
            self.orders = [producer.send(_order(at)) for at in range(30)]
            self.payments = [producer.send(Message("payments", b"p" * 10)) for _ in range(7)]
            producer.send(Message(TRACES, _traces(self.orders)))
        bury(broker.namesrv, "payments", "billing", 2)
        with Admin(broker.namesrv) as admin:
            admin.groups.create("warehouse")
            ends = admin.offsets.search_topic("orders", "latest")
            admin.offsets.commit("warehouse", {queue: end - 2 for queue, end in ends.items()})
        send_back(broker.namesrv, self.orders[0], "warehouse")

    def report(self, **more: Any) -> Report:
        where = {} if "store" in more else {"namesrv": self.namesrv}
        return report(**{**where, "spark": self.spark, **more})


def _order(at: int) -> Message:
    return Message("orders", b"x" * (at + 1), tags=TAGS[at % len(TAGS)])


def _traces(orders: list[SendResult]) -> bytes:
    """As clients write them: a send, and the beginning and end of a consumption, of each."""
    lines: list[list[object]] = []
    for at, sent in enumerate(orders):
        now = round(dt.datetime.now(dt.UTC).timestamp() * 1000) + 5000
        lines.append([
            "Pub", now, "DefaultRegion", "shop", "orders", sent.message_id, "", "", "127.0.0.1:1",
            10, at, 0, sent.offset_message_id, str(at != 0).lower(), "127.0.0.1:2",
        ])  # fmt: skip
        begin = ["SubBefore", now, "DefaultRegion", "warehouse", f"r{at}", sent.message_id, 0, "k"]
        end = ["SubAfter", f"r{at}", sent.message_id, at, "true", "k", 0]
        lines += [[*begin, "client"], [*end, now, "warehouse"] if at % 2 else end]
    return _report(lines + _nonsense(orders[0]))


def _nonsense(sent: SendResult) -> list[list[object]]:
    """Lines as no client writes them, but anybody may."""
    before = ["DefaultRegion", "warehouse", "r", sent.message_id, 0, "k", "client"]
    return [
        ["Pub", 10**20, "", "shop", "orders", sent.message_id, "", "", "", 1, 1, 0, "", "true"],
        ["Pub", 1, "", "shop", "orders", sent.message_id, "", "", "", 1, 10**20, 0, "", "true"],
        ["SubBefore", -(2**63), *before],
        ["SubAfter", "r", sent.message_id, 10**20, "true", "k", 0],
    ]


def _report(lines: list[list[object]]) -> bytes:
    return "".join("\x01".join(map(str, line)) + "\x02" for line in lines).encode()


@pytest.fixture(scope="module")
def shop(spark: "SparkSession") -> "Iterator[Shop]":
    with EmbeddedBroker() as broker:
        yield Shop(spark, broker)


@pytest.fixture(scope="module")
def told(shop: Shop) -> Report:
    return shop.report()


def test_topics_are_counted(told: Report) -> None:
    assert [topic.topic for topic in told.topics] == ["orders", "payments"]
    orders, payments = told.topics
    assert (orders.messages, payments.messages) == (30, 9)
    assert orders.bytes == sum(range(1, 31))
    assert (orders.queues, orders.size.max, orders.size.p50) == (4, 30, 15)
    assert orders.tags == [TagCount(tag, 10) for tag in sorted(TAGS)]
    assert orders.first_ms <= orders.last_ms
    assert orders.stored_after_ms.count == 30
    assert told.messages == 39
    assert told.timeline is not None
    assert {one.topic: sum(one.messages) for one in told.timeline.series} == {
        "orders": 30, "payments": 9,
    }  # fmt: skip
    assert sum(sum(one.bytes) for one in told.timeline.series) == told.bytes


def test_groups_have_their_lag_and_dead_letters(shop: Shop, told: Report) -> None:
    groups = {group.group: group for group in told.groups}
    warehouse = groups["warehouse"]
    assert warehouse.lag == 8
    assert Counter(queue.lag for queue in warehouse.queues) == {2: 4}
    assert {queue.topic for queue in warehouse.queues} == {"orders"}
    assert all(queue.consumed_to_ms for queue in warehouse.queues if queue.consumed)
    asked = shop.report(groups=["billing"], topics=["payments"])
    assert [(group.group, group.dead_letters) for group in asked.groups] == [("billing", 2)]
    assert [topic.topic for topic in asked.topics] == ["payments"]
    assert "No offsets in these topics: group billing." in asked.notes


def test_groups_have_what_came_to_them_again(shop: Shop, told: Report) -> None:
    assert {group.group: group.retries for group in told.groups} == {"warehouse": 1}
    before = shop.report(groups=["warehouse"], until_ms=told.topics[0].first_ms)
    assert [group.retries for group in before.groups] == [0]


def test_traces_tell_of_sends_and_consumptions(told: Report) -> None:
    [sends] = told.sends
    assert (sends.topic, sends.sends, sends.failed) == ("orders", 30, 1)
    assert (sends.cost_ms.p50, sends.cost_ms.max) == (14, 29)
    [consumed] = told.consumptions
    assert (consumed.group, consumed.consumptions, consumed.failed) == ("warehouse", 30, 0)
    assert consumed.cost_ms is not None
    assert consumed.cost_ms.max == 29
    assert consumed.waited_ms is not None
    assert consumed.waited_ms.count == 30
    assert 4000 < consumed.waited_ms.p50 < 60_000


def test_traces_tell_of_the_topics_that_were_asked_for(shop: Shop, told: Report) -> None:
    payments, orders = (shop.report(topics=[topic]) for topic in ("payments", "orders"))
    assert (payments.sends, payments.consumptions) == ([], [])
    assert (orders.sends, orders.consumptions) == (told.sends, told.consumptions)


def test_lines_of_a_trace_with_impossible_numbers_are_left_out(shop: Shop) -> None:
    assert traces_in(_report(_nonsense(shop.orders[0]))) == []
    assert len(traces_in(_traces(shop.orders))) == 90


def test_the_files_of_a_store_tell_the_same(shop: Shop, told: Report) -> None:
    saved = Path(shop.store) / "config" / "consumerOffset.json"
    until(lambda: saved.exists() and b"warehouse" in saved.read_bytes())
    offline = shop.report(store=shop.store)
    assert offline.topics == told.topics
    assert offline.timeline == told.timeline
    assert offline.sends == told.sends
    assert offline.consumptions == told.consumptions
    lags = {group.group: group.lag for group in offline.groups}
    assert lags["warehouse"] == 8
    assert {group.group: group.retries for group in offline.groups} == {"warehouse": 1}


def test_a_time_chooses_messages(shop: Shop) -> None:
    nothing = shop.report(until_ms=1)
    assert (nothing.topics, nothing.timeline, nothing.messages) == ([], None, 0)
    assert "There is no message in this time." in as_page(nothing)
    assert shop.report(since_ms=1, topics=["payments"]).messages == 9


def test_what_cannot_be_is_refused_by_its_name(shop: Shop, tmp_path: Path) -> None:
    for wrong, said in (
        ({"namesrv": ""}, "either namesrv or store"),
        ({"topics": ["nothing"]}, "there is no topic nothing; there are"),
        ({"since_ms": 2, "until_ms": 1}, "since is not before until"),
        ({"store": str(tmp_path)}, "is no store"),
        ({"options": {"topic": "x"}}, "topic: a report takes accessKey"),
    ):
        with pytest.raises(SparkError, match=said):
            shop.report(**wrong)
    with pytest.raises(BadOption):
        report("", spark=shop.spark)


def test_the_command_writes_a_page_and_prints_figures(
    shop: Shop,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(spark_report, "quiet_session", lambda *_: shop.spark)
    page = tmp_path / "report.html"
    arguments = ["spark", "report", "--store", shop.store, "--topic", "orders", "--out", str(page)]
    assert main([*arguments, "-o", "json"]) == 0
    told = msgspec.json.decode(capsys.readouterr().out, type=Report)
    assert [topic.messages for topic in told.topics] == [30]
    assert "<svg" in page.read_text()
    assert main(["spark", "report", "--store", shop.store]) == 2
    assert "--out report.html" in capsys.readouterr().err
    assert main([*arguments, "--option", "tls=true"]) == 2
    assert "--option tls is for a cluster" in capsys.readouterr().err
    assert main(["spark", "report", "--store", "/nowhere", "-o", "json"]) == 3
    assert "is no store" in capsys.readouterr().err


def test_what_a_worker_fails_with_is_told_in_its_own_words() -> None:
    said = (
        "An exception was thrown from the Python worker:\nTraceback (most recent call last):\n"
        '  File "x.py", line 1, in f\nzipfile.BadZipError: not a zip\n\nJVM stacktrace:\n'
        "org.apache.spark.SparkException: Job aborted\n\tat org.apache.spark"
    )
    assert str(plain(RuntimeError(said))) == "BadZipError: not a zip"
    assert str(plain(RuntimeError("first\nsecond"))) == "RuntimeError: first"


# -- the page ------------------------------------------------------------------------------------


class Tags(html.parser.HTMLParser):
    """Checks that all that is opened is closed, in order."""

    VOID = frozenset({"meta", "line", "rect", "circle", "polyline"})

    def __init__(self, page: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.counts: Counter[str] = Counter()
        self.feed(page)
        self.close()

    def handle_starttag(self, tag: str, attrs: object) -> None:
        self.counts[tag] += 1
        if tag != "meta":
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: object) -> None:
        self.counts[tag] += 1

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def made_report(topics: int, buckets: int) -> Report:
    names = [f"topic <{at}>" for at in range(topics)]
    series = [Series(name, [at + 1] * buckets, [1000] * buckets) for at, name in enumerate(names)]
    some = Spread(10, 1.0, 2.0, 900.0, 5000.0)
    figures = [
        TopicFigures(name, 10, 99, 4, 0, 60_000, some, some, [TagCount("<b>", 6)], 6)
        for name in names
    ]
    line: list[float | None] = [5.0] * buckets
    line[0] = None
    timeline = Timeline(60_000_000, 60_000, buckets, series, line, line)
    return Report("<source>", 1, None, None, figures, timeline, [], [], [], ["<note>"])


def test_a_page_is_whole_and_needs_nothing_else() -> None:
    page = as_page(made_report(12, 30))
    tags = Tags(page)
    assert tags.open == []
    assert tags.counts["svg"] == 3
    assert not re.search(r"<script|https?:|url\(|@import|<link|<img", page)
    assert "prefers-color-scheme:dark" in page
    assert "topic &lt;0&gt;" in page
    assert "<source>" not in page
    assert "<note>" not in page
    assert "all others" in page, "eight colours, twelve topics"


def test_bars_are_as_high_as_what_they_stand_for() -> None:
    axis = Axis(["a", "b"], [0])
    drawn = stacked_bars("t", [Row("x", [10, 5]), Row("y", [10, 0])], axis, short)
    heights = [float(found) for found in re.findall(r'height="([\d.]+)"/>', drawn)]
    assert heights == pytest.approx([110.0, 110.0, 55.0])
    assert "a\nx: 10\ny: 10" in drawn


def test_a_line_has_a_gap_where_nothing_is_known() -> None:
    axis = Axis(list("abcde"), [])
    drawn = lines("t", [Row("x", [1, 2, None, 3, 4])], axis, span)
    assert drawn.count("<polyline") == 2
    assert drawn.count("<circle") == 4


def test_a_line_of_clocks_that_run_ahead_lies_at_the_bottom() -> None:
    axis = Axis(list("ab"), [])
    drawn = lines("t", [Row("x", [-90_000, -5])], axis, span)
    assert {float(y) for y in re.findall(r'cy="([\d.]+)"', drawn)} == {232.0}
    assert "x: -1.5 min" in drawn
    assert "x: -5 ms" in drawn


def test_buckets_are_few_enough_and_as_short_as_can_be() -> None:
    assert bucket_ms(0, 0) == 1000
    assert bucket_ms(0, 119_999) == 1000
    assert bucket_ms(0, 120_000) == 10_000
    assert bucket_ms(0, 3_600_000) == 60_000
    for last in (10**7, 10**9, 10**10, 10**12):
        assert last // bucket_ms(0, last) < BUCKETS_MAX


def test_numbers_are_written_to_be_read() -> None:
    assert [number(value) for value in (1234567, 0.25, 12.34)] == ["1,234,567", "0.25", "12.3"]
    assert [short(value) for value in (0, 950, 1500, 2_000_000)] == ["0", "950", "1.5 k", "2 M"]
    assert [size(value) for value in (0, 1023, 1536, 5 << 30)] == [
        "0 B", "1023 B", "1.5 KiB", "5 GiB",
    ]  # fmt: skip
    assert [span(value) for value in (3, 1500, 90_000, 7_200_000)] == [
        "3 ms", "1.5 s", "1.5 min", "2 h",
    ]  # fmt: skip
    assert moment(0) == "1970-01-01 00:00:00"
    assert [counted(n, "batch") for n in (0, 1, 2000)] == ["0 batches", "1 batch", "2,000 batches"]
    assert counted(1, "file") == "1 file"
