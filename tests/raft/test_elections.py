"""Who is voted for, when, and what is on disk before anybody hears of it."""

import pytest

from cometmq.raft.effects import Role
from cometmq.raft.members import Members
from cometmq.raft.messages import Accepted, Append, TimeoutNow, VoteReply, VoteRequest
from cometmq.raft.settings import RaftSettings

from .bench import SETTINGS, Bench, append, ballot, saves, sent
from .sim_node import SECOND_US
from .simulation import Simulation

PATIENT_MS = SETTINGS.election_min_ms


def test_a_member_votes_once_in_an_epoch() -> None:
    bench = Bench().later(PATIENT_MS)
    bench.hear("b", ballot(1, 0, 0))
    bench.hear("c", ballot(1, 0, 0))
    assert sent(VoteReply, bench.save()) == [VoteReply(1, True, False), VoteReply(1, False, False)]


def test_a_vote_is_saved_before_it_is_told() -> None:
    bench = Bench().later(PATIENT_MS)
    effects = bench.hear("b", ballot(1, 0, 0))
    assert [(state.epoch, state.vote) for state in saves(effects)] == [(1, "b")]
    assert not sent(VoteReply, effects)
    assert sent(VoteReply, bench.save())


def test_a_vote_survives_a_restart() -> None:
    bench = Bench(epoch=1, vote="b").later(PATIENT_MS)
    (refusal,) = sent(VoteReply, bench.hear("c", ballot(1, 0, 0)))
    (repeated,) = sent(VoteReply, bench.hear("b", ballot(1, 0, 0)))
    assert (refusal.granted, repeated.granted) == (False, True)


@pytest.mark.parametrize(
    ("last_epoch", "end", "granted"),
    [(2, 100, True), (2, 101, True), (3, 50, True), (2, 99, False), (1, 500, False)],
)
def test_votes_go_to_logs_that_are_as_up_to_date(last_epoch: int, end: int, granted: bool) -> None:
    for trial in (True, False):
        bench = Bench((2, 0), end=100).later(PATIENT_MS)
        effects = bench.hear("b", ballot(3, last_epoch, end, trial=trial)) + bench.save()
        assert [reply.granted for reply in sent(VoteReply, effects)] == [granted]


def test_a_trial_binds_nobody_and_changes_nothing() -> None:
    bench = Bench().later(PATIENT_MS)
    effects = bench.hear("b", ballot(1, 0, 0, trial=True))
    assert sent(VoteReply, effects) == [VoteReply(1, True, True)]
    assert not saves(effects)
    assert bench.core.epoch == 0


def test_a_member_that_hears_a_leader_elects_no_other() -> None:
    bench = Bench((1, 0), end=10).later(PATIENT_MS)
    bench.hear("b", append(1, 10, 0, after=1, of=(1, 0)))
    effects = bench.later(PATIENT_MS - 1).hear("c", ballot(5, 1, 10))
    assert sent(VoteReply, effects) == [VoteReply(1, False, False)]
    assert bench.core.epoch == 1


def test_unless_the_leader_hands_over() -> None:
    bench = Bench((1, 0), end=10)
    bench.hear("b", append(1, 10, 0, after=1, of=(1, 0)))
    bench.hear("c", VoteRequest(2, 1, 10, trial=False, handed_over=True))
    assert sent(VoteReply, bench.save()) == [VoteReply(2, True, False)]


def test_a_start_counts_as_a_word_from_the_leader() -> None:
    (reply,) = sent(VoteReply, Bench().later(PATIENT_MS - 1).hear("b", ballot(1, 0, 0)))
    assert not reply.granted


def test_a_silent_leader_is_missed_by_a_trial_first_then_an_election() -> None:
    bench = Bench((1, 0), end=10)
    trial = sent(VoteRequest, bench.tick())
    assert trial == [VoteRequest(2, 1, 10, trial=True)] * 2
    assert bench.core.epoch == 1
    effects = bench.hear("b", VoteReply(2, True, True))
    assert [(state.epoch, state.vote) for state in saves(effects)] == [(2, "a")]
    assert sent(VoteRequest, bench.save()) == [VoteRequest(2, 1, 10, trial=False)] * 2
    bench.hear("c", VoteReply(2, True, False))
    assert bench.core.role is Role.LEADER


def test_votes_of_another_epoch_or_of_the_trial_do_not_count() -> None:
    bench = Bench()
    bench.tick()
    bench.hear("b", VoteReply(1, True, True))
    bench.hear("c", VoteReply(1, True, True))
    assert (bench.core.role, bench.core.epoch) == (Role.CANDIDATE, 1)


def test_a_refusal_tells_of_a_newer_epoch() -> None:
    bench = Bench()
    bench.tick()
    bench.hear("b", VoteReply(7, False, True))
    assert (bench.core.role, bench.core.epoch) == (Role.FOLLOWER, 7)


def test_a_newcomer_without_members_neither_votes_nor_campaigns() -> None:
    bench = Bench(members=Members()).later(10 * PATIENT_MS)
    bench.core.tick(bench.now_ms)
    assert not sent(VoteRequest, bench.effects())
    effects = bench.hear("b", ballot(1, 0, 0)) + bench.save()
    assert [reply.granted for reply in sent(VoteReply, effects)] == [False]


def test_a_leader_whom_no_majority_answers_steps_down() -> None:
    bench = Bench().elect()
    assert bench.core.role is Role.LEADER
    bench.later(SETTINGS.check_quorum_ms + 1).tick()
    assert (bench.core.role, bench.core.may_append) == (Role.FOLLOWER, False)


def test_a_leader_whom_one_of_two_answers_stays() -> None:
    bench = Bench().elect()
    bench.later(1000)
    bench.hear("b", Accepted(1, 0, 0, False, echo_ms=bench.now_ms))
    bench.later(1000).tick()
    assert bench.core.role is Role.LEADER


def test_a_lease_runs_from_the_heartbeat_that_a_majority_answered() -> None:
    bench = Bench().elect()
    sent_ms = bench.now_ms
    bench.store(1)
    bench.later(100).hear("b", Accepted(1, 1, 1, False, echo_ms=sent_ms))
    assert bench.core.lease_ends_ms == sent_ms + SETTINGS.lease_ms


def test_a_leader_that_hands_over_has_no_lease() -> None:
    bench = Bench().elect()
    bench.store(1)
    bench.hear("b", Accepted(1, 1, 1, False, echo_ms=bench.now_ms))
    bench.core.transfer(bench.now_ms, "b")
    assert sent(TimeoutNow, bench.effects()) == [TimeoutNow(1)]
    assert bench.core.lease_ends_ms < bench.now_ms


def test_a_leader_takes_appends_again_when_handing_over_fails() -> None:
    bench = Bench().elect()
    bench.core.transfer(bench.now_ms, "b")
    assert not bench.core.may_append
    bench.later(1000).hear("b", Accepted(1, 0, 0, False, echo_ms=bench.now_ms))
    bench.later(SETTINGS.transfer_ms - 1000).tick()
    assert bench.core.may_append


def test_a_leader_of_an_older_epoch_is_told_so() -> None:
    bench = Bench(epoch=5)
    effects = bench.hear("b", append(4, 0, 0, after=0, of=(0, 0)))
    assert [message.epoch for message in sent(object, effects)] == [5]  # type: ignore[attr-defined]
    assert bench.core.leader is None


def test_nothing_is_appended_before_the_mark_of_the_epoch() -> None:
    bench = Bench()
    bench.tick()
    bench.hear("b", VoteReply(1, True, True))
    bench.save()
    bench.hear("b", VoteReply(1, True, False))
    assert bench.core.role is Role.LEADER
    before = bench.core.may_append
    effects = bench.save()
    assert (before, bench.core.may_append) == (False, True)
    assert sent(Append, effects)


@pytest.mark.parametrize("voters", [3, 5])
def test_a_dead_leader_is_replaced_within_three_seconds(voters: int) -> None:
    took_us = []
    for seed in range(40):
        group = Simulation(seed, voters=voters, settings=RaftSettings())
        group.run_until_true(group.has_leader, 5 * SECOND_US)
        group.run_until(group.now_us + SECOND_US + 10_000 * seed)
        leader = group.leader()
        assert leader is not None
        leader.crash()
        took_us.append(group.run_until_true(group.has_leader, 3 * SECOND_US))
    assert sorted(took_us)[len(took_us) // 2] < 1.5 * SECOND_US
