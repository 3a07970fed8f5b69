"""When bytes are taken, cut, acknowledged and confirmed."""

import pytest

from cometmq.raft.effects import (
    Confirmed,
    CutLog,
    Effect,
    RestartLog,
    Role,
    RoleChanged,
    SaveState,
    Send,
    WriteLog,
)
from cometmq.raft.errors import SafetyViolated
from cometmq.raft.messages import Accepted, Append, Rejected, Restart, VoteReply

from .bench import BASE, Bench, append, only, saves, sent, stretch, writes


def test_bytes_that_follow_are_written_and_acknowledged_when_synced() -> None:
    bench = Bench((1, 0), end=100)
    effects = bench.hear("b", append(1, 100, 20, after=1, of=(1, 0)))
    assert writes(effects) == [(100, 120)]
    assert not sent(Accepted, effects)
    (reply,) = sent(Accepted, bench.store(120))
    assert (reply.agreed, reply.stored) == (120, 120)


def test_bytes_behind_a_gap_are_rejected() -> None:
    (reply,) = sent(
        Rejected, Bench((1, 0), end=100).hear("b", append(1, 150, 20, after=1, of=(1, 0)))
    )
    assert (reply.offset, reply.newest_epoch, reply.newest_end) == (150, 1, 100)


def test_bytes_behind_another_epoch_are_rejected() -> None:
    bench = Bench((1, 0), (2, 60), (4, 80), end=100)
    effects = bench.hear("b", append(5, 100, 20, after=3, of=(5, 100))) + bench.save()
    (reply,) = sent(Rejected, effects)
    assert (reply.newest_epoch, reply.newest_end) == (2, 80)
    assert not writes(effects)


def test_a_tail_is_cut_where_the_epochs_part() -> None:
    bench = Bench((1, 0), (2, 60), end=100, epoch=3)
    effects = bench.hear("b", append(3, 60, 20, after=1, of=(3, 60)))
    assert only(CutLog, effects) == [CutLog(60, 1)]
    # The table is saved behind the cut and before the bytes.
    order = [type(e) for e in effects if not isinstance(e, RoleChanged)]
    assert order == [CutLog, SaveState]
    assert [state.stretches for state in saves(effects)] == [(BASE, stretch(1, 0), stretch(3, 60))]
    assert not writes(effects)
    assert writes(bench.save()) == [(60, 80)]


def test_a_tail_is_cut_where_the_leaders_epoch_goes_on() -> None:
    bench = Bench((1, 0), (2, 60), end=100, epoch=3)
    effects = bench.hear("b", append(3, 40, 30, after=1, of=(1, 0)))
    assert only(CutLog, effects) == [CutLog(60, 1)]
    assert [state.stretches for state in saves(effects)] == [(BASE, stretch(1, 0))]
    assert writes(bench.save()) == [(60, 70)]


def test_late_appends_cut_nothing() -> None:
    bench = Bench((1, 0), end=100)
    for offset, count in [(0, 50), (50, 10), (100, 0)]:
        effects = bench.hear("b", append(1, offset, count, after=1, of=(1, 0)))
        assert not only(CutLog, effects)
        assert not writes(effects)
    assert bench.core.log.end == 100


def test_of_bytes_that_overlap_only_the_new_ones_are_written() -> None:
    effects = Bench((1, 0), end=100).hear("b", append(1, 90, 30, after=1, of=(1, 0)))
    assert writes(effects) == [(100, 120)]


def test_what_is_confirmed_is_never_cut() -> None:
    bench = Bench((1, 0), (2, 60), end=100, confirmed=80, epoch=3)
    with pytest.raises(SafetyViolated):
        bench.hear("b", append(3, 80, 20, after=2, of=(3, 60)))


def test_a_sync_that_began_before_a_cut_says_nothing_about_the_bytes_after_it() -> None:
    bench = Bench((1, 0), end=50, epoch=2)
    bench.hear("b", append(2, 50, 50, after=1, of=(2, 50)))
    bench.save()
    bench.hear("c", append(3, 60, 40, after=2, of=(3, 60)))
    bench.save()
    assert (bench.core.log.end, bench.core.log.stored) == (100, 50)
    assert not sent(Accepted, bench.store(100, generation=0))
    (reply,) = sent(Accepted, bench.store(100, generation=1))
    assert reply.stored == 100


def test_a_follower_confirms_only_what_it_compared_and_stored() -> None:
    bench = Bench((1, 0), (2, 60), end=100, epoch=3)
    effects = bench.hear("b", append(3, 40, 0, after=1, of=(3, 60), confirmed=90))
    assert only(Confirmed, effects) == [Confirmed(40)]
    bench = Bench((1, 0), end=100)
    effects = bench.hear("b", append(1, 100, 20, after=1, of=(1, 0), confirmed=120))
    assert only(Confirmed, effects) == [Confirmed(100)]


def test_what_agreed_with_one_leader_is_compared_again_with_the_next() -> None:
    bench = Bench((1, 0), (2, 60), end=100)
    bench.hear("b", append(2, 100, 0, after=2, of=(2, 60)))
    effects = bench.hear("c", append(3, 40, 0, after=1, of=(3, 60))) + bench.save()
    assert [(reply.agreed, reply.stored) for reply in sent(Accepted, effects)] == [(40, 40)]


def test_older_bytes_on_a_majority_are_not_confirmed_without_a_record_of_the_own_epoch() -> None:
    bench = Bench((1, 0), (2, 60), end=100).elect()
    bench.store(101)
    effects = bench.hear("b", Accepted(3, 100, 100, False, echo_ms=0))
    assert not only(Confirmed, effects)
    effects = bench.hear("b", Accepted(3, 101, 101, False, echo_ms=0))
    assert only(Confirmed, effects) == [Confirmed(101)]


def test_a_leader_confirms_no_more_than_it_has_stored_itself() -> None:
    bench = Bench().elect()
    for member in ("b", "c"):
        effects = bench.hear(member, Accepted(1, 1, 1, False, echo_ms=0))
        assert not only(Confirmed, effects)
    assert only(Confirmed, bench.store(1)) == [Confirmed(1)]


def test_a_leader_searches_back_to_the_last_common_epoch() -> None:
    bench = Bench((1, 0), (4, 60), end=100).elect()
    effects = bench.hear("b", Rejected(5, 100, 3, 90, 0, echo_ms=0))
    (question,) = sent(Append, effects)
    assert (question.offset, question.previous_epoch, question.data) == (60, 1, b"")
    effects = bench.hear("b", Accepted(5, 60, 60, False, echo_ms=0))
    assert [(m.offset, len(m.data), m.stretch.epoch) for m in sent(Append, effects)] == [
        (60, 10, 4), (70, 10, 4), (80, 10, 4),
    ]  # fmt: skip


def test_a_chunk_is_of_one_stretch() -> None:
    bench = Bench((1, 0), (4, 95), end=100).elect()
    effects = bench.hear("b", Accepted(5, 90, 90, False, echo_ms=0))
    assert [(m.offset, len(m.data), m.stretch) for m in sent(Append, effects)] == [
        (90, 5, stretch(1, 0)), (95, 5, stretch(4, 95)),
    ]  # fmt: skip
    effects = bench.hear("b", Accepted(5, 95, 95, False, echo_ms=0))
    assert [(m.offset, len(m.data), m.stretch) for m in sent(Append, effects)] == [
        (100, 1, stretch(5, 100)),
    ]  # fmt: skip


def test_small_chunks_wait_for_answers_and_become_one() -> None:
    bench = Bench().elect()
    bench.hear("b", Accepted(1, 1, 1, False, echo_ms=0))
    ends = [chunks_to_b(bench.append(2)) for _ in range(4)]
    assert ends == [[(1, 2)], [(3, 2)], [], []]
    assert chunks_to_b(bench.hear("b", Accepted(1, 3, 3, False, echo_ms=0))) == [(5, 4)]


def test_a_whole_chunk_waits_for_nobody() -> None:
    bench = Bench().elect()
    bench.hear("b", Accepted(1, 1, 1, False, echo_ms=0))
    assert [chunks_to_b(bench.append(2)) for _ in range(2)] == [[(1, 2)], [(3, 2)]]
    assert chunks_to_b(bench.append(12)) == [(5, 10)]


def test_chunks_whose_answers_were_lost_hold_nothing_up_behind_the_next_heartbeat() -> None:
    bench = Bench().elect()
    bench.hear("b", Accepted(1, 1, 1, False, echo_ms=0))
    for _ in range(3):
        bench.append(2)
    assert chunks_to_b(bench.hear("b", Accepted(1, 5, 1, False, echo_ms=0))) == [(5, 2)]


def chunks_to_b(effects: list[Effect]) -> list[tuple[int, int]]:
    to_b = [e.message for e in effects if isinstance(e, Send) and e.to == "b"]
    return [(m.offset, len(m.data)) for m in to_b if isinstance(m, Append) and m.data]


def test_bytes_in_flight_to_a_member_are_bounded_and_others_are_not_held_back() -> None:
    bench = Bench((1, 0), end=200).elect()
    slow = sent(Append, bench.hear("b", Accepted(2, 0, 0, False, echo_ms=0)))
    assert sum(len(message.data) for message in slow) == 30
    quick = sent(Append, bench.hear("c", Accepted(2, 190, 190, False, echo_ms=0)))
    assert sum(len(message.data) for message in quick) == 11
    more = sent(Append, bench.hear("b", Accepted(2, 30, 10, False, echo_ms=0)))
    assert sum(len(message.data) for message in more) == 10


def test_lost_bytes_are_noticed_by_the_next_heartbeat_and_sent_again() -> None:
    bench = Bench((1, 0), end=200).elect()
    bench.hear("c", Accepted(2, 190, 190, False, echo_ms=0))
    bench.hear("c", Rejected(2, 201, 1, 190, 0, echo_ms=0))
    effects = bench.hear("c", Accepted(2, 190, 190, False, echo_ms=0))
    assert [message.offset for message in sent(Append, effects)] == [190, 200]


def test_stretches_lost_in_a_crash_are_forgotten_on_disk_before_other_bytes_come() -> None:
    bench = Bench((1, 0), (2, 60), end=50, epoch=3)
    effects = bench.effects()
    assert [state.stretches for state in saves(effects)] == [(BASE, stretch(1, 0))]
    effects = bench.hear("b", append(3, 50, 20, after=1, of=(1, 0)))
    assert not writes(effects)
    assert writes(bench.save()) == [(50, 70)]


def test_a_member_behind_the_leaders_first_byte_begins_anew_there() -> None:
    bench = Bench((1, 0), (2, 60), end=100, epoch=5)
    effects = bench.hear("b", Restart(5, 300, stretch(4, 200), sent_ms=0))
    (state,) = saves(effects)
    assert (state.floor, state.stretches) == (300, (stretch(4, 200),))
    assert not only(RestartLog, effects)
    effects = bench.save()
    assert only(RestartLog, effects) == [RestartLog(300, 1)]
    assert [(r.agreed, r.stored) for r in sent(Accepted, effects)] == [(300, 300)]
    assert writes(bench.hear("b", append(5, 300, 10, after=4, of=(4, 200)))) == [(300, 310)]


def test_the_end_of_a_leadership_is_told_before_other_bytes_are_confirmed() -> None:
    bench = Bench().elect()
    bench.hear("b", Restart(2, 300, stretch(2, 200), sent_ms=0))
    news = [e for e in bench.save() if isinstance(e, RoleChanged | Confirmed)]
    assert news == [RoleChanged(Role.FOLLOWER, 2, "b"), Confirmed(300)]


def test_it_does_so_after_a_crash_in_between() -> None:
    bench = Bench((1, 0), end=100, floor=300)
    assert only(RestartLog, bench.effects()) == [RestartLog(300, 1)]
    assert (bench.core.log.start, bench.core.log.end) == (300, 300)


def test_a_member_that_has_the_leaders_first_byte_keeps_its_log() -> None:
    bench = Bench((1, 0), end=100)
    effects = bench.hear("b", Restart(1, 40, stretch(1, 0), sent_ms=0))
    assert not only(RestartLog, effects)
    assert [reply.agreed for reply in sent(Accepted, effects)] == [40]


def test_a_leader_that_lacks_the_bytes_asks_to_begin_anew() -> None:
    bench = Bench((1, 0), end=100, start=50, confirmed=60).elect()
    effects = bench.hear("b", Rejected(2, 100, 1, 20, 0, echo_ms=0))
    assert [(m.start, m.stretch) for m in sent(Restart, effects)] == [(50, stretch(1, 0))]
    effects = bench.hear("b", Accepted(2, 50, 50, False, echo_ms=0))
    assert [message.offset for message in sent(Append, effects)] == [50, 60, 70]


def test_a_full_member_takes_nothing_and_says_so() -> None:
    bench = Bench((1, 0), end=100)
    (write,) = only(WriteLog, bench.hear("b", append(1, 100, 20, after=1, of=(1, 0))))
    bench.core.refused(bench.now_ms, write.offset)
    bench.save()
    effects = bench.hear("b", append(1, 100, 20, after=1, of=(1, 0)))
    assert not writes(effects)
    assert [(r.agreed, r.full) for r in sent(Accepted, effects)] == [(100, True)]
    bench.core.room_again()
    assert writes(bench.hear("b", append(1, 100, 20, after=1, of=(1, 0)))) == [(100, 120)]


def test_a_full_member_is_sent_nothing_but_heartbeats() -> None:
    bench = Bench((1, 0), end=100).elect()
    assert not sent(Append, bench.hear("b", Accepted(2, 50, 50, True, echo_ms=0)))
    beats = [m for m in sent(Append, bench.tick()) if m.offset == 50]
    assert [m.data for m in beats] == [b""]
    assert sent(Append, bench.hear("b", Accepted(2, 50, 50, False, echo_ms=0)))


def test_a_candidate_whose_bytes_found_no_room_gives_up() -> None:
    """Its requests for votes may claim bytes that it does not have."""
    bench = Bench((1, 0), end=100)
    bench.hear("b", append(2, 100, 20, after=1, of=(2, 100)))
    bench.later(3000).tick()
    assert bench.core.role is Role.CANDIDATE
    bench.core.refused(bench.now_ms, 100)
    bench.save()
    bench.hear("b", VoteReply(3, True, True))
    assert (bench.core.role, bench.core.epoch, bench.core.log.end) == (Role.FOLLOWER, 2, 100)
