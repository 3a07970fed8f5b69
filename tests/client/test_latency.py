"""The queue for the next message: fair turns, and away from brokers that are slow or fail."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cometmq.client.latency import LatencyFaults, RoundRobin
from cometmq.protocol.message_queue import MessageQueue

NOW_MS = 1_700_000_000_000


def queues_at(*brokers: str, each: int = 2) -> list[MessageQueue]:
    return [MessageQueue("topic", broker, number) for broker in brokers for number in range(each)]


QUEUES = queues_at("a", "b", "c")
BROKERS = ("a", "b", "c")


def brokers_chosen(
    faults: LatencyFaults,
    times: int,
    now_ms: int = NOW_MS,
    avoid: str | None = None,
    queues: list[MessageQueue] = QUEUES,
) -> Counter[str]:
    turn = RoundRobin()
    return Counter(faults.choose(queues, turn, now_ms, avoid).broker_name for _ in range(times))


def test_queues_take_turns_from_where_one_starts() -> None:
    turn = RoundRobin(start=4)
    assert [turn.next(QUEUES) for _ in range(6)] == [*QUEUES[4:], *QUEUES[:4]]


def test_a_start_beyond_the_queues_is_inside_them() -> None:
    assert RoundRobin(start=2**31).next(QUEUES) is QUEUES[2**31 % 6]


def test_the_turn_goes_on_when_queues_come_and_go() -> None:
    turn = RoundRobin(start=5)
    assert turn.next(QUEUES) is QUEUES[5]
    assert turn.next(QUEUES[:2]) is QUEUES[0]
    assert turn.next(QUEUES) is QUEUES[1]


def test_a_retry_goes_to_another_broker() -> None:
    turn = RoundRobin()
    assert [turn.next(QUEUES, avoid="b").broker_name for _ in range(4)] == ["a", "a", "c", "c"]


def test_a_retry_stays_where_there_is_no_other_broker() -> None:
    turn = RoundRobin()
    queues = queues_at("a")
    assert [turn.next(queues, avoid="a") for _ in range(2)] == queues


def test_queues_behind_an_avoided_broker_share_its_load() -> None:
    turn = RoundRobin()
    chosen = Counter(turn.next(QUEUES, avoid="a") for _ in range(400))
    assert chosen == dict.fromkeys(QUEUES[2:], 100)


# RocketMQ 5's two lists, latencyMax and notAvailableDuration.
@pytest.mark.parametrize(
    ("latency_ms", "alone_ms"),
    [
        (0, 0),
        (50, 0),
        (100, 0),
        (549, 0),
        (550, 2_000),
        (1_799, 2_000),
        (1_800, 5_000),
        (3_000, 6_000),
        (5_000, 10_000),
        (14_999, 10_000),
        (15_000, 30_000),
        (90_000, 30_000),
    ],
)
def test_a_slow_broker_is_left_alone_by_how_slow_it_was(latency_ms: int, alone_ms: int) -> None:
    faults = LatencyFaults()
    faults.observe("a", latency_ms, NOW_MS)
    assert faults.is_available("a", NOW_MS + alone_ms)
    if alone_ms:
        assert not faults.is_available("a", NOW_MS + alone_ms - 1)


@pytest.mark.parametrize("latency_ms", [1, 20_000])
def test_a_broker_that_failed_is_left_alone_for_ten_seconds(latency_ms: int) -> None:
    faults = LatencyFaults()
    faults.observe("a", latency_ms, NOW_MS, failed=True)
    assert not faults.is_available("a", NOW_MS + 9_999)
    assert faults.is_available("a", NOW_MS + 10_000)
    assert faults.is_available("b", NOW_MS)


def test_a_shorter_fault_does_not_end_a_longer_one() -> None:
    faults = LatencyFaults()
    faults.observe("a", 15_000, NOW_MS)
    faults.observe("a", 550, NOW_MS)
    faults.observe("a", 1, NOW_MS)
    assert not faults.is_available("a", NOW_MS + 29_999)


def test_while_all_is_well_every_queue_gets_its_turn() -> None:
    faults = LatencyFaults()
    for broker in BROKERS:
        faults.observe(broker, 3, NOW_MS)
    turn = RoundRobin()
    assert [faults.choose(QUEUES, turn, NOW_MS) for _ in range(12)] == QUEUES * 2


def test_messages_go_around_a_slow_broker_and_come_back() -> None:
    faults = LatencyFaults()
    faults.observe("b", 600, NOW_MS)
    assert brokers_chosen(faults, 400) == {"a": 200, "c": 200}
    assert brokers_chosen(faults, 600, NOW_MS + 2_000) == {"a": 200, "b": 200, "c": 200}


def test_one_broker_comes_back_while_another_is_still_left_alone() -> None:
    faults = LatencyFaults()
    faults.observe("b", 15_000, NOW_MS)
    faults.observe("a", 600, NOW_MS)
    assert brokers_chosen(faults, 100, NOW_MS + 1_999) == {"c": 100}
    assert brokers_chosen(faults, 100, NOW_MS + 2_000) == {"a": 50, "c": 50}


def test_the_broker_just_tried_is_not_tried_again_though_it_is_available() -> None:
    faults = LatencyFaults()
    faults.observe("b", 1, NOW_MS, failed=True)
    assert brokers_chosen(faults, 100, avoid="a") == {"c": 100}


def test_with_none_available_slow_brokers_serve_rather_than_failing_ones() -> None:
    faults = LatencyFaults()
    faults.observe("a", 600, NOW_MS)
    faults.observe("b", 1, NOW_MS, failed=True)
    faults.observe("c", 20_000, NOW_MS)
    assert brokers_chosen(faults, 100) == {"a": 50, "c": 50}


def test_a_slow_broker_is_better_than_the_one_just_tried() -> None:
    faults = LatencyFaults()
    faults.observe("b", 600, NOW_MS)
    faults.observe("c", 1, NOW_MS, failed=True)
    assert brokers_chosen(faults, 100, avoid="a") == {"b": 100}


def test_with_all_failing_all_but_the_last_one_are_tried() -> None:
    faults = LatencyFaults()
    for broker in BROKERS:
        faults.observe(broker, 1, NOW_MS, failed=True)
    assert brokers_chosen(faults, 99) == {"a": 34, "b": 33, "c": 32}
    assert brokers_chosen(faults, 100, avoid="a") == {"b": 50, "c": 50}


def test_the_only_broker_is_used_however_bad() -> None:
    faults = LatencyFaults()
    faults.observe("a", 1, NOW_MS, failed=True)
    assert brokers_chosen(faults, 10, avoid="a", queues=queues_at("a")) == {"a": 10}


def test_a_broker_that_answers_again_is_no_longer_failing_only_slow() -> None:
    faults = LatencyFaults()
    for broker in BROKERS:
        faults.observe(broker, 1, NOW_MS, failed=True)
    faults.observe("b", 5, NOW_MS)
    assert brokers_chosen(faults, 10) == {"b": 10}
    assert not faults.is_available("b", NOW_MS)


def test_faults_of_the_past_do_not_pile_up() -> None:
    faults = LatencyFaults()
    for number in range(1000):
        faults.observe(f"broker-{number}", 1, NOW_MS + 1_000 * number, failed=True)
    assert len(faults._until_ms) == len(faults._failed) == 10


observations = st.lists(
    st.tuples(
        st.sampled_from(BROKERS), st.integers(0, 20_000), st.integers(0, 9_000), st.booleans()
    )
)


@given(
    seen=observations,
    avoid=st.none() | st.sampled_from(BROKERS),
    start=st.integers(0, 99),
    later_ms=st.integers(0, 31_000),
)
def test_an_available_broker_not_just_tried_is_chosen_if_there_is_one(
    seen: list[tuple[str, int, int, bool]], avoid: str | None, start: int, later_ms: int
) -> None:
    faults = LatencyFaults()
    now_ms = NOW_MS
    for broker, latency_ms, pause_ms, failed in seen:
        now_ms += pause_ms
        faults.observe(broker, latency_ms, now_ms, failed=failed)
    now_ms += later_ms
    good = {name for name in BROKERS if name != avoid and faults.is_available(name, now_ms)}
    chosen = faults.choose(QUEUES, RoundRobin(start), now_ms, avoid).broker_name
    assert chosen in good if good else chosen != avoid
