"""The judge of the fault tests finds each kind of wrong, and nothing where all is well."""

import dataclasses

import pytest

from cometmq.client.producer.results import SendResult
from cometmq.protocol.message_queue import MessageQueue

from .ledger import Delivery, Group, Ledger, Place, faults_of

QUEUE = MessageQueue("work", "broker-a", 0)
BODIES = [b"a", b"b", b"c"]
STORED: dict[Place, bytes] = {(QUEUE, offset): body for offset, body in enumerate(BODIES)}


class Story:
    """Three messages sent, acknowledged and consumed in order, until a test tells it otherwise."""

    def __init__(self) -> None:
        self.ledger = Ledger()
        self.group: Group = self.ledger.group("group", is_orderly=True)
        self.stored = dict(STORED)
        self.group.saw_committed({QUEUE: len(BODIES)})
        for offset, body in enumerate(BODIES):
            self.ledger.sent.add(body)
            self.ledger.acknowledge(body, SendResult("", "", QUEUE, offset))
            self.deliver(offset, 10 * offset + 1, 10 * offset + 5)

    def deliver(self, offset: int, began: int, ended: int, member: str = "one") -> Delivery:
        body = self.stored[QUEUE, offset]
        delivery = self.ledger.begin(self.group, member, (QUEUE, offset), body, began)
        if ended:
            self.ledger.end(self.group, delivery, ended)
        return delivery

    def forget(self, offset: int) -> None:
        deliveries = self.group.deliveries
        deliveries[:] = [one for one in deliveries if one.place[1] != offset]
        self.group.bodies_done.discard(BODIES[offset])

    @property
    def wrong(self) -> str:
        return "; ".join(faults_of(self.ledger, self.stored))


@pytest.fixture
def story() -> Story:
    return Story()


def test_nothing_is_wrong_with_messages_that_came_in_order(story: Story) -> None:
    assert story.wrong == ""


def test_repeats_are_nothing_wrong(story: Story) -> None:
    story.deliver(1, 40, 44, "two")
    story.deliver(2, 45, 46, "two")
    assert story.wrong == ""


def test_an_acknowledged_message_that_no_broker_has_is_lost(story: Story) -> None:
    del story.stored[QUEUE, 2]
    assert "acknowledged at" in story.wrong
    assert "is not there: lost" in story.wrong


def test_an_acknowledged_message_that_a_group_never_got_is_lost(story: Story) -> None:
    story.forget(2)
    story.group.commits = [(50, {QUEUE: 2})]
    assert story.wrong == "group never got b'c': lost"


def test_a_message_whose_handler_never_ended_is_not_consumed(story: Story) -> None:
    story.forget(2)
    story.deliver(2, 40, 0)
    assert "group never got b'c': lost" in story.wrong


def test_a_body_that_was_never_sent_is_found(story: Story) -> None:
    delivery = story.deliver(2, 40, 41)
    story.group.deliveries.append(
        dataclasses.replace(delivery, body=b"x", began_ns=42, ended_ns=43)
    )
    assert story.wrong == "group got b'x', never sent"


def test_an_offset_behind_an_unfinished_message_is_committed_too_far(story: Story) -> None:
    story.forget(1)
    del story.ledger.acknowledged[b"b"]
    assert "before 1 was finished" in story.wrong
    assert "group committed 3" in story.wrong


def test_an_offset_is_committed_too_far_even_if_its_message_is_finished_later(
    story: Story,
) -> None:
    story.group.commits = [(24, {QUEUE: 2})]
    assert story.wrong == ""
    story.group.commits = [(24, {QUEUE: 3})]
    assert story.wrong.endswith("before 2 was finished")


def test_two_handlers_of_a_queue_at_once_are_out_of_order(story: Story) -> None:
    story.deliver(1, 22, 30, "two")
    assert "two began 1 while one was at work on 2" in story.wrong


def test_a_handler_that_had_lost_its_lock_already_is_excused(story: Story) -> None:
    story.group.deliveries[2].is_excused = True
    story.deliver(1, 22, 30, "two")
    assert story.wrong == ""


def test_a_message_begun_before_the_one_ahead_was_finished_is_out_of_order(story: Story) -> None:
    story.forget(1)
    story.deliver(1, 31, 33)
    assert story.wrong.endswith("2 was begun before 1 was finished")


def test_order_is_no_matter_of_a_concurrent_group(story: Story) -> None:
    story.group.is_orderly = False
    story.deliver(1, 22, 30, "two")
    assert story.wrong == ""
