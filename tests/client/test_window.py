"""The messages of a queue that are not done yet: what may be committed, and what waits."""

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from cometmq.client.consumer.window import Window
from cometmq.client.received import ReceivedMessage
from cometmq.protocol.message_queue import MessageQueue

QUEUE = MessageQueue("orders", "broker-a", 0)


def message(offset: int, body: bytes = b"12345") -> ReceivedMessage:
    return ReceivedMessage(
        "orders", QUEUE, offset, offset * 100, 0, 0, 0, 0, 0, body, b"", b"", b"", 0
    )


def test_an_empty_window_commits_where_it_reads_on() -> None:
    window = Window(7)
    assert (window.next_offset, window.commit_offset, window.span) == (7, 7, 0)
    window.add([], 20)  # A gap: nothing there matched.
    assert (window.next_offset, window.commit_offset, window.span) == (20, 20, 0)


def test_nothing_behind_an_unfinished_message_is_committed() -> None:
    window = Window(0)
    messages = [message(offset) for offset in range(3)]
    window.add(messages, 3)
    window.finish(messages[1:])
    assert window.commit_offset == 0
    window.finish(messages[:1])
    assert window.commit_offset == 3


def test_gaps_are_committed_once_what_lies_before_them_is_done() -> None:
    window = Window(0)
    first, second = message(4), message(9)
    window.add([first, second], 15)
    assert window.commit_offset == 4
    window.finish([first])
    assert (window.commit_offset, window.span) == (9, 6)
    window.finish([second])
    assert (window.commit_offset, window.span) == (15, 0)


def test_what_waits_is_counted_in_messages_and_bytes() -> None:
    window = Window(0)
    messages = [message(0, b"1"), message(1, b"22"), message(2, b"")]
    window.add(messages, 3)
    assert (window.count, window.bytes) == (3, 3)
    window.finish([messages[1]])
    assert (window.count, window.bytes) == (2, 1)


class _Step(msgspec.Struct):
    gaps: list[int]
    """Before each message that comes, and behind the last one."""
    done: list[int]
    """Which of the unfinished ones end then."""


@given(
    st.integers(0, 2**40),
    st.lists(
        st.builds(
            _Step,
            gaps=st.lists(st.integers(0, 5), max_size=6),
            done=st.lists(st.integers(0, 2**16), max_size=8),
        ),
        max_size=30,
    ),
)
def test_it_always_commits_the_first_unfinished_offset(start: int, steps: list[_Step]) -> None:
    window, unfinished, following = Window(start), list[ReceivedMessage](), start
    for step in steps:
        came = []
        for gap in step.gaps[:-1]:
            came.append(message(following + gap, bytes(gap)))
            following += gap + 1
        following += step.gaps[-1] if step.gaps else 0
        window.add(came, following)
        unfinished += came
        for choice in step.done:
            if unfinished:
                window.finish([unfinished.pop(choice % len(unfinished))])
        first = min((one.queue_offset for one in unfinished), default=following)
        assert window.commit_offset == first
        assert window.next_offset == following
        assert window.span == (following - first if unfinished else 0)
        assert window.count == len(unfinished)
        assert window.bytes == sum(len(one.stored_body) for one in unfinished)
