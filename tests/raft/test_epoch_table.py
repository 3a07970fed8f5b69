"""The epoch table against a plain list that has an epoch for every byte."""

from hypothesis import given, settings
from hypothesis import strategies as st

from cometmq.raft.epoch_table import EpochTable, Stretch
from cometmq.raft.members import group

BASE = Stretch(0, 0, group("a"))
NO_DEADLINE = settings(deadline=None)
"""Busy machines are slow."""


@st.composite
def tables(draw: st.DrawFn) -> tuple[EpochTable, list[int]]:
    """A table, and the epochs of the bytes one by one."""
    table, epochs, epoch = EpochTable([BASE]), list[int](), 0
    for more in draw(st.lists(st.tuples(st.integers(0, 3), st.integers(1, 6)), max_size=8)):
        epoch = max(epoch + more[0], 1)
        table.begin(Stretch(epoch, len(epochs), group("a")))
        epochs += [epoch] * more[1]
    return table, epochs


@NO_DEADLINE
@given(tables())
def test_every_byte_has_its_epoch(made: tuple[EpochTable, list[int]]) -> None:
    table, epochs = made
    assert [table.at(offset).epoch for offset in range(len(epochs))] == epochs
    assert [table.before(offset).epoch for offset in range(len(epochs) + 1)] == [0, *epochs]


@NO_DEADLINE
@given(tables())
def test_stretches_and_epochs_end_where_the_next_begin(made: tuple[EpochTable, list[int]]) -> None:
    table, epochs = made
    end = len(epochs)
    for offset, epoch in enumerate(epochs):
        newer = [at for at, other in enumerate(epochs) if other > epoch]
        assert table.end_of_epoch(offset, end) == min(newer, default=end)
        starts = [s.start for s in table.stretches if s.start > offset]
        assert table.end_of_stretch(offset, end) == min(starts, default=end)


@NO_DEADLINE
@given(tables(), st.integers(0, 30))
def test_the_newest_epoch_up_to_another(made: tuple[EpochTable, list[int]], asked: int) -> None:
    table, epochs = made
    older = [epoch for epoch in [0, *epochs] if epoch <= asked]
    assert table.newest_up_to(asked, len(epochs)) == (older[-1], len(older) - 1)


@NO_DEADLINE
@given(tables(), st.data())
def test_a_cut_table_is_that_of_the_shorter_log(
    made: tuple[EpochTable, list[int]], data: st.DataObject
) -> None:
    table, epochs = made
    end = data.draw(st.integers(0, len(epochs)))
    before = len(table.stretches)
    was_longer = table.cut(end)
    assert was_longer == (len(table.stretches) < before)
    assert [table.at(offset).epoch for offset in range(end)] == epochs[:end]
    assert all(stretch.start < end for stretch in table.stretches[1:])
    table.begin(Stretch(99, end, group("a")))
    assert table.before(end + 1).epoch == 99


@NO_DEADLINE
@given(tables(), st.data())
def test_a_trimmed_table_knows_all_from_the_byte_before_its_start_on(
    made: tuple[EpochTable, list[int]], data: st.DataObject
) -> None:
    table, epochs = made
    start = data.draw(st.integers(0, len(epochs)))
    table.forget_before(start)
    known = range(max(start - 1, 0), len(epochs))
    assert [table.at(offset).epoch for offset in known] == epochs[known.start :]
    assert len([s for s in table.stretches if s.start < start]) <= 1 or start == 0


def table_of(epochs: list[int]) -> EpochTable:
    table = EpochTable([BASE])
    for offset, epoch in enumerate(epochs):
        if epoch != table.before(offset).epoch:
            table.begin(Stretch(epoch, offset, group("a")))
    return table


@NO_DEADLINE
@given(tables(), st.lists(st.integers(1, 9)), st.lists(st.integers(1, 9)), st.integers(0, 5))
def test_the_search_for_a_common_point_ends_at_it(
    common: tuple[EpochTable, list[int]], ours: list[int], theirs: list[int], longer: int
) -> None:
    """Leader and follower ask one another until the epochs before an offset are the same. After
    the common part epochs are of one of them only: here the leader's are even."""
    last = common[1][-1:] or [1]
    leaders = common[1] + last * longer + [last[0] + 2 * n + last[0] % 2 for n in sorted(ours)]
    followers = common[1] + [last[0] + 2 * n + 1 - last[0] % 2 for n in sorted(theirs)]
    leader, follower = table_of(leaders), table_of(followers)
    offset = len(leaders)
    for _ in range(20):
        epoch = leader.before(offset).epoch
        if offset <= len(followers) and follower.before(offset).epoch == epoch:
            assert leaders[:offset] == followers[:offset]
            return
        newest, end = follower.newest_up_to(epoch, len(followers))
        point = min(leader.newest_up_to(newest, len(leaders))[1], end)
        assert point < offset
        offset = point
    raise AssertionError("no end")
