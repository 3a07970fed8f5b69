"""Figures: totals, rates, and how many of them are kept."""

from pathlib import Path

import pytest

from cometmq.broker import stats as stats_module
from cometmq.broker.stats import (
    GROUP_GET_NUMS,
    GROUP_GET_SIZE,
    SAMPLE_INTERVAL_MS,
    TOPIC_PUT_NUMS,
    TOPIC_PUT_SIZE,
    Meter,
    Stats,
)

from .brokers import GROUP, TOPIC, Client, bounded, context_of, serving

BEGAN_MS = 1_700_000_000_000


@bounded
async def test_traffic_is_counted_by_topic_and_by_group(tmp_path: Path) -> None:
    async with serving(tmp_path) as broker:
        client, stats = await Client.to(broker), context_of(broker).stats
        for _ in range(5):
            await client.send(body=bytes(100))
        answer = await client.pull(maxMsgNums=3)
        await client.pull(offset=5)
        await client.send("a b")
        await client.send(i="a\x01" + "x" * 32_700)

        totals = {
            name: meter.total
            for name, key in (
                (TOPIC_PUT_NUMS, TOPIC), (TOPIC_PUT_SIZE, TOPIC),
                (GROUP_GET_NUMS, f"{TOPIC}@{GROUP}"), (GROUP_GET_SIZE, f"{TOPIC}@{GROUP}"),
            )
            if (meter := stats.find(name, key)) is not None
        }  # fmt: skip
        assert totals[TOPIC_PUT_NUMS] == stats.put.total == 5
        assert totals[TOPIC_PUT_SIZE] == context_of(broker).store.appended.value
        assert totals[GROUP_GET_NUMS] == stats.got.total == 3
        assert totals[GROUP_GET_SIZE] == len(answer.body)
        assert (stats.pulls_found.total, stats.pulls_missed.total) == (1, 1)


def test_a_rate_is_what_came_between_two_samples() -> None:
    meter, now = Meter(), BEGAN_MS
    for number in range(6):
        meter.sample(number, now)
        meter.total += 100
        now += SAMPLE_INTERVAL_MS
    assert meter.rate(now, 10_000) == pytest.approx(10.0)
    assert meter.minute(now).tps == pytest.approx(10.0, rel=0.2)


def test_a_topic_that_is_gone_leaves_no_figures() -> None:
    stats = Stats(BEGAN_MS)
    stats.meter(TOPIC_PUT_NUMS, "orders").total += 1
    stats.meter(GROUP_GET_NUMS, "orders@billing").total += 1
    stats.meter(GROUP_GET_NUMS, "payments@billing").total += 1
    stats.forget("orders")
    assert stats.find(TOPIC_PUT_NUMS, "orders") is None
    assert stats.find(GROUP_GET_NUMS, "orders@billing") is None
    assert stats.find(GROUP_GET_NUMS, "payments@billing") is not None


def test_there_are_no_more_figures_than_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stats_module, "METERS_MAX", 10)
    stats = Stats(BEGAN_MS)
    for n in range(100):
        stats.meter(TOPIC_PUT_NUMS, f"topic-{n}").total += 1
    assert len(stats._named) == 10
    assert stats.meter(TOPIC_PUT_NUMS, "topic-0").total == 1
    stats.sample(BEGAN_MS + SAMPLE_INTERVAL_MS)
