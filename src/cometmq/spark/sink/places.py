"""Which queue each row goes to: the one it names, that of its sharding key, or one by turns.

Pure. The same rows over the same queues always go to the same places, so a row that is sent again
by another attempt of its task stands in the queue where it stood before.
"""

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

import numpy as np

from cometmq.protocol.message_queue import MessageQueue

from ..errors import NotSent
from .rows import NO_QUEUE, Numbers, Rows

TURN_ROWS: Final = 1024
"""So many rows of a partition go to one queue before it is the next one's turn."""
Queues = Mapping[str, Sequence[MessageQueue]]
"""Of each topic, in the order in which all producers see them."""


class Place(NamedTuple):
    queue: MessageQueue
    rows: Numbers
    """In their order."""


def places(rows: Rows, queues: Queues, first_row: int, partition: int) -> list[Place]:
    turns = partition + (first_row + np.arange(rows.number, dtype=np.int64)) // TURN_ROWS
    found: list[Place] = []
    for number, topic in enumerate(rows.topics):
        numbers = rows.topic_numbers
        mine = np.arange(rows.number) if numbers is None else np.flatnonzero(numbers == number)
        chosen = _chosen(rows, mine, queues[topic], turns[mine], first_row)
        found += _grouped(mine, chosen, queues[topic])
    return found


def _chosen(
    rows: Rows, mine: Numbers, queues: Sequence[MessageQueue], turns: Numbers, first_row: int
) -> Numbers:
    """For each of the rows, the number of its queue among the topic's."""
    chosen: Numbers = turns % len(queues)
    if rows.hashes is not None:
        hashes = rows.hashes[mine]
        chosen = np.where(hashes != NO_QUEUE, hashes % len(queues), chosen)
    if rows.queue_ids is not None:
        named = rows.queue_ids[mine]
        asks = named != NO_QUEUE
        if asks.all():
            return _numbers_of(named, turns, queues, first_row + mine)
        if asks.any():
            numbers = _numbers_of(named[asks], turns[asks], queues, first_row + mine[asks])
            chosen[asks] = numbers
    return chosen


def _numbers_of(
    queue_ids: Numbers, turns: Numbers, queues: Sequence[MessageQueue], asking_rows: Numbers
) -> Numbers:
    """Several brokers may have a queue of that number; they take turns then."""
    of_topic = np.array([queue.queue_id for queue in queues], np.int64)
    counts = np.bincount(of_topic)
    missing = np.flatnonzero(queue_ids >= len(counts))
    if not len(missing):
        missing = np.flatnonzero(counts[queue_ids] == 0)
    if len(missing):
        row, queue_id = asking_rows[missing[0]], queue_ids[missing[0]]
        raise NotSent(
            f"row {row}: topic {queues[0].topic} has no queue {queue_id}; it has "
            f"{len(counts)} a broker"
        )
    by_id = np.argsort(of_topic, kind="stable")
    first = np.cumsum(counts) - counts
    chosen = first[queue_ids]
    if counts.max() > 1:
        chosen += turns % counts[queue_ids]
    numbers: Numbers = by_id[chosen]
    return numbers


def _grouped(mine: Numbers, chosen: Numbers, queues: Sequence[MessageQueue]) -> list[Place]:
    # Numpy sorts small numbers by their digits, which is quicker than comparing them.
    order = np.argsort(chosen.astype(np.min_scalar_type(len(queues))), kind="stable")
    edges = np.flatnonzero(np.diff(chosen[order])) + 1
    groups = np.split(order, edges)
    return [Place(queues[chosen[group[0]]], mine[group]) for group in groups if len(group)]
