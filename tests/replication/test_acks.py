"""How many replicas a message needs, the master counted."""

import pytest

from cometmq.replication.acks import AckPolicy, TooFewReplicas, replicated_offset


@pytest.mark.parametrize(
    ("acknowledged", "needed", "offset"),
    [
        ([], 2, 0),
        ([100], 2, 100),
        ([100, 300], 2, 300),
        ([100, 300], 3, 100),
        ([100, 300], 4, 0),
        ([50, 70, 60], 3, 60),
        # Nobody is needed, so nobody moves it.
        ([100], 1, 0),
    ],
)
def test_the_log_is_replicated_as_far_as_enough_slaves_have_it(
    acknowledged: list[int], needed: int, offset: int
) -> None:
    assert replicated_offset(acknowledged, needed) == offset


def test_an_asynchronous_master_waits_for_nobody() -> None:
    policy = AckPolicy(waits=False, in_sync_replicas=3, refuses=True)
    assert policy.needed(in_sync=1) == 1
    policy.require(in_sync=1)


def test_a_synchronous_master_needs_as_many_as_are_set_whoever_is_there() -> None:
    policy = AckPolicy(waits=True, in_sync_replicas=2)
    assert policy.needed(in_sync=1) == policy.needed(in_sync=5) == 2
    policy.require(in_sync=1)


def test_with_acting_masters_too_few_replicas_are_a_refusal() -> None:
    policy = AckPolicy(waits=True, in_sync_replicas=3, refuses=True)
    policy.require(in_sync=3)
    with pytest.raises(TooFewReplicas, match="2 of 3"):
        policy.require(in_sync=2)


def test_a_master_that_adapts_goes_down_to_the_minimum() -> None:
    policy = AckPolicy(
        waits=True, in_sync_replicas=3, min_in_sync_replicas=2, adapts=True, refuses=True
    )
    assert policy.needed(in_sync=5) == 3
    assert policy.needed(in_sync=2) == 2
    policy.require(in_sync=2)
    with pytest.raises(TooFewReplicas, match="1 of 2"):
        policy.require(in_sync=1)
