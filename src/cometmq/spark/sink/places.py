"""Which queue each row goes to: the one it names, that of its sharding key, or one by turns.

Pure. The same rows over the same queues always go to the same places, so a row that is sent again
by another attempt of its task stands in the queue where it stood before.
"""

import itertools
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
_NO_QUEUES: Final = np.array([NO_QUEUE])
"""Of rows among which none names its queue, however many they are."""


class Place(NamedTuple):
    queue: MessageQueue
    rows: Numbers
    """In their order."""


def places(rows: Rows, queues: Queues, first_row: int, partition: int) -> list[Place]:
    found: list[Place] = []
    for number, topic in enumerate(rows.topics):
        numbers = rows.topic_numbers
        mine = np.arange(rows.number) if numbers is None else np.flatnonzero(numbers == number)
        chosen = _chosen(rows, mine, queues[topic], first_row, partition)
        found += _grouped(mine, chosen, queues[topic])
    return found


def _chosen(
    rows: Rows, mine: Numbers, queues: Sequence[MessageQueue], first_row: int, partition: int
) -> Numbers:
    """For each of the rows, the number of its queue among the topic's."""
    named = _NO_QUEUES if rows.queue_ids is None else rows.queue_ids[mine]
    asks = named != NO_QUEUE
    if asks.all():
        return _numbers_of(named, first_row + mine, partition, queues)
    chosen: Numbers = _turns(first_row + mine, partition) % len(queues)
    if rows.hashes is not None:
        hashes = rows.hashes[mine]
        chosen = np.where(hashes != NO_QUEUE, hashes % len(queues), chosen)
    if asks.any():
        chosen[asks] = _numbers_of(named[asks], first_row + mine[asks], partition, queues)
    return chosen


def _turns(task_rows: Numbers, partition: int) -> Numbers:
    turns: Numbers = partition + task_rows // TURN_ROWS
    return turns


def _numbers_of(
    queue_ids: Numbers, task_rows: Numbers, partition: int, queues: Sequence[MessageQueue]
) -> Numbers:
    """Several brokers may have a queue of that number; they take turns then."""
    of_topic = np.array([queue.queue_id for queue in queues], np.int64)
    counts = np.bincount(of_topic)
    there = np.append(counts, 0)[np.minimum(queue_ids, len(counts))]
    missing = np.flatnonzero(there == 0)
    if len(missing):
        row, queue_id = task_rows[missing[0]], queue_ids[missing[0]]
        raise NotSent(
            f"row {row}: topic {queues[0].topic} has no queue {queue_id}; it has "
            f"{len(counts)} a broker"
        )
    by_id = np.argsort(of_topic, kind="stable")
    chosen = (np.cumsum(counts) - counts)[queue_ids]
    if counts.max() > 1:
        chosen += _turns(task_rows, partition) % there
    numbers: Numbers = by_id[chosen]
    return numbers


def _grouped(mine: Numbers, chosen: Numbers, queues: Sequence[MessageQueue]) -> list[Place]:
    # Numpy sorts small numbers by their digits, which is quicker than comparing them.
    order = np.argsort(chosen.astype(np.min_scalar_type(len(queues))), kind="stable")
    edges = [0, *np.cumsum(np.bincount(chosen)).tolist()]
    return [
        Place(queues[number], mine[order[start:end]])
        for number, (start, end) in enumerate(itertools.pairwise(edges))
        if start < end
    ]
