"""The judge of the chaos tests finds each kind of wrong there is."""

import pytest

from cometmq.protocol.host import Host
from cometmq.protocol.message import StoredMessage

from .history import Ack, History, body_of

HERE = Host("127.0.0.1", 1)


def stored(offset: int, body: bytes) -> StoredMessage:
    return StoredMessage(
        topic="work", queue_id=0, queue_offset=offset, physical_offset=offset * 100, size=100,
        body=body, properties=b"", flag=0, sys_flag=0, body_crc=0, born_timestamp=0, born_host=HERE,
        store_timestamp=0, store_host=HERE, reconsume_times=0, prepared_transaction_offset=0,
    )  # fmt: skip


def queue(*bodies: bytes) -> dict[int, list[StoredMessage]]:
    return {0: [stored(offset, body) for offset, body in enumerate(bodies)]}


ONE, TWO, THREE = (body_of(7, number) for number in range(3))


def told(*acks: tuple[bytes, int]) -> History:
    """Three were tried, a second apart; these were acknowledged at these places, and came."""
    history = History()
    history.tried = {ONE, TWO, THREE}
    for number, (body, offset) in enumerate(acks):
        history.acknowledge(Ack("python", body, 0, offset, number, number + 0.25))
        history.receive("python", body, number + 0.5)
    return history


def test_what_was_acknowledged_and_is_there_is_right_whatever_else_came_of_tries() -> None:
    told((ONE, 0), (THREE, 2)).check(queue(ONE, TWO, THREE))
    told((ONE, 0), (TWO, 1)).check(queue(ONE, TWO))
    told((ONE, 1)).check(queue(ONE, ONE, TWO))


@pytest.mark.parametrize(
    ("acks", "found", "wrong"),
    [
        ([(ONE, 0), (TWO, 1)], queue(ONE), "1 acknowledged messages are lost"),
        ([(ONE, 0), (TWO, 1)], queue(ONE, THREE), "1 acknowledged messages are lost"),
        ([(ONE, 0), (TWO, 0)], queue(ONE, TWO), "acknowledged at one place"),
        ([(ONE, 0)], queue(ONE, b"8:0"), "invented"),
        ([(ONE, 0)], {0: [stored(0, ONE), stored(2, TWO)]}, "queue 0 has gaps"),
        ([(ONE, 0)], queue(ONE, THREE, TWO), "behind 2"),
    ],
)
def test_wrongs_are_found(
    acks: list[tuple[bytes, int]], found: dict[int, list[StoredMessage]], wrong: str
) -> None:
    with pytest.raises(AssertionError, match=wrong):
        told(*acks).check(found)


def test_what_never_came_to_a_reader_and_what_came_from_nowhere_is_found() -> None:
    history = told((ONE, 0))
    history.receive("java", TWO, 1.0)
    with pytest.raises(AssertionError, match="java: 1 never came"):
        history.check(queue(ONE, TWO))
    history.receive("java", ONE, 1.0)
    history.receive("java", b"8:0", 1.0)
    with pytest.raises(AssertionError, match="java: from nowhere"):
        history.check(queue(ONE, TWO))


def test_an_outage_ends_with_what_was_begun_after_the_fault() -> None:
    history = told((ONE, 0), (TWO, 1), (THREE, 2))
    history.faults = [(0.1, "leader killed"), (1.0, "follower killed")]
    assert history.outages("python") == pytest.approx([1.15, 0.25])
    assert history.failovers("python") == pytest.approx([1.15])
    assert history.silences("python") == pytest.approx([1.4, 0.5])
