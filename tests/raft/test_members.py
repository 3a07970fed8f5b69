"""Members come and go one at a time; what the log says about them holds."""

import pytest

from cometmq.raft.errors import NotLeader, Refused
from cometmq.raft.members import Members, group
from cometmq.raft.messages import Accepted

from .bench import ABC, Bench, append
from .sim_node import SECOND_US
from .simulation import SMALL, Simulation


def leader() -> Bench:
    """Leader of epoch 1, its mark confirmed."""
    bench = Bench().elect()
    bench.store(1)
    for member in ("b", "c"):
        bench.hear(member, Accepted(1, 1, 1, False, echo_ms=bench.now_ms))
    assert bench.core.confirmed == 1
    return bench


def change(bench: Bench, members: Members) -> None:
    bench.core.change(bench.now_ms, members)
    bench.effects()
    bench.save()


def test_the_greatest_number_of_a_majority() -> None:
    values = {"a": 5, "b": 3, "c": 9, "d": 1, "e": 4}
    assert group(*"abcde").reached_by_majority(values.__getitem__) == 4
    assert group(*"abcd").reached_by_majority(values.__getitem__) == 3
    assert group("a").reached_by_majority(values.__getitem__) == 5


def test_a_learner_gets_the_log_and_counts_for_nothing() -> None:
    bench = leader()
    change(bench, ABC.with_learner("d"))
    bench.store(2)
    bench.hear("d", Accepted(1, 2, 2, False, echo_ms=bench.now_ms))
    assert bench.core.confirmed == 1
    bench.hear("b", Accepted(1, 2, 2, False, echo_ms=bench.now_ms))
    assert bench.core.confirmed == 2


def test_a_change_is_refused_until_the_last_one_is_confirmed() -> None:
    bench = leader()
    change(bench, ABC.with_learner("d"))
    with pytest.raises(Refused, match="not confirmed"):
        change(bench, bench.core.members.with_learner("e"))


def test_a_change_is_refused_until_the_leaders_first_record_is_confirmed() -> None:
    bench = Bench().elect()
    with pytest.raises(Refused, match="not confirmed"):
        change(bench, ABC.with_learner("d"))


@pytest.mark.parametrize("members", [group("a"), group("a", "d", "e"), group("a", "b", "d")])
def test_two_changes_at_once_are_refused(members: Members) -> None:
    with pytest.raises(Refused, match="one at a time"):
        change(leader(), members)


def test_a_voter_has_to_be_a_learner_that_caught_up() -> None:
    with pytest.raises(Refused, match="not caught up"):
        change(leader(), group(*"abcd"))


def test_a_leader_has_to_hand_over_before_it_leaves() -> None:
    with pytest.raises(Refused, match="hand over"):
        change(leader(), ABC.without("a"))


def test_nobody_leaves_if_the_others_do_not_answer() -> None:
    bench = leader().later(1000)
    bench.hear("c", Accepted(1, 1, 1, False, echo_ms=bench.now_ms))
    bench.later(600)
    with pytest.raises(Refused, match="no majority"):
        change(bench, ABC.without("c"))


def test_only_a_leader_changes_members() -> None:
    with pytest.raises(NotLeader):
        change(Bench(), ABC.without("c"))


def test_members_hold_as_soon_as_they_are_in_the_log_and_go_with_it() -> None:
    four = group(*"abcd")
    bench = Bench((1, 0), end=50)
    bench.hear("b", append(1, 50, 10, after=1, of=(1, 50), members=four))
    assert bench.core.members == four
    bench.save()
    bench.hear("c", append(2, 50, 10, after=1, of=(2, 50)))
    assert bench.core.members == ABC


def test_a_group_grows_and_shrinks_while_it_works() -> None:
    town = Simulation(3, voters=3)
    town.run_until_true(town.has_leader, 5 * SECOND_US)
    leader = town.some_leader()
    for _ in range(30):
        leader.append([b"x" * 50])
        town.run_until(town.now_us + 20_000)
    town.add_node("n3", Members()).start()
    leader.change(leader.core.members.with_learner("n3"))

    def the_learner_is_a_voter() -> bool:
        try:
            leader.change(leader.core.members.with_voter("n3"))
        except Refused:
            return "n3" in leader.core.members.voters
        return False

    def a_voter_is_gone() -> bool:
        try:
            leader.change(leader.core.members.without(leaves))
        except Refused:
            return leaves not in leader.core.members.everybody
        return False

    leaves = next(name for name in leader.core.members.voters if name != leader.id)
    town.run_until_true(the_learner_is_a_voter, 3 * SECOND_US)
    town.run_until_true(a_voter_is_gone, 3 * SECOND_US)
    town.run_until_true(town.is_settled, 2 * SECOND_US)
    assert town.nodes["n3"].disk.end == leader.disk.end


def test_leadership_goes_where_it_is_sent_and_nothing_is_lost() -> None:
    town = Simulation(4, voters=3, settings=SMALL)
    town.run_until_true(town.has_leader, 5 * SECOND_US)
    old = town.some_leader()
    old.append([b"before"])
    to = next(name for name in old.core.members.voters if name != old.id)
    old.transfer(to)

    def the_successor_leads() -> bool:
        return town.nodes[to].leads

    assert town.run_until_true(the_successor_leads, SECOND_US) < 200_000
    town.run_until_true(town.is_settled, 2 * SECOND_US)
    assert b"before" in bytes(town.checker.truth)
