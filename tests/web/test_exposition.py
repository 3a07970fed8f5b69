"""Prometheus's own parser reads what we write."""

from cometmq.histogram import Histogram
from cometmq.web.exposition import Family, counter, encode, gauge
from tests.web.scrapes import Scrape

ODD = 'a "quoted" \\ back\nslash, {brace} ü'


def scrape(*families: Family, **common: str) -> Scrape:
    return Scrape(encode([(family, common) for family in families]).decode())


def test_values_and_labels_survive() -> None:
    found = scrape(
        gauge("lag", "two\nlines \\ and more", 7, topic=ODD),
        counter("in_total", "", 2**60),
        node="a",
    )
    assert found.value("lag", topic=ODD, node="a") == 7
    assert found.value("in_total", node="a") == 2**60
    assert found.families["lag"].documentation == "two\nlines \\ and more"
    assert found.families["lag"].type == "gauge"


def test_text_that_is_not_utf8_does_not_break_the_page() -> None:
    assert scrape(gauge("lag", "", 1, topic="\udcff")).value("lag", topic="?") == 1


def test_a_histogram_counts_what_is_below_each_bound_and_at_it() -> None:
    histogram = Histogram((1, 2.5))
    for value in (0.5, 1, 2, 2.5, 3):
        histogram.add(value)
    histogram.add(10, times=4)
    found = scrape(Family("took", "histogram", "", [({"topic": "t"}, histogram)]))
    buckets = [found.value("took_bucket", le=bound) for bound in ("1", "2.5", "+Inf")]
    assert buckets == [2, 4, 9]
    assert found.value("took_count", topic="t") == 9
    assert found.value("took_sum", topic="t") == 0.5 + 1 + 2 + 2.5 + 3 + 40


def test_a_family_of_two_servers_is_one_family() -> None:
    page = encode([
        (gauge("ready", "yes", 1), {"node": "a"}),
        (gauge("other", "no", 0), {}),
        (gauge("ready", "yes", 0), {"node": "b"}),
    ]).decode()  # fmt: skip
    assert page.count("# TYPE ready") == 1
    found = Scrape(page)
    assert [found.value("ready", node=node) for node in "ab"] == [1, 0]


def test_a_family_without_samples_is_still_named() -> None:
    assert "empty" in scrape(Family("empty", "gauge", "nobody yet", [])).families
