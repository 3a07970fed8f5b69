"""Freed memory that is kept: no page of it has to be cleared again."""

import resource
import sys

import pytest

from cometmq.transport.memory import keep_freed_memory

PIECE_BYTES = 400_000
ROUNDS = 200


def page_faults_of_rounds() -> int:
    """Twelve pieces alive at a time, as answers to pulls are."""
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(ROUNDS):
        pieces = [bytes(PIECE_BYTES + number) for number in range(12)]
        del pieces
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before


@pytest.mark.skipif(sys.platform != "linux", reason="a matter of glibc")
def test_large_pieces_come_from_memory_that_is_there() -> None:
    if not keep_freed_memory():
        pytest.skip("no glibc")
    page_faults_of_rounds()
    pages = ROUNDS * 12 * PIECE_BYTES // resource.getpagesize()
    assert page_faults_of_rounds() < pages // 20


def test_asking_twice_changes_nothing_more() -> None:
    assert keep_freed_memory() == keep_freed_memory()
