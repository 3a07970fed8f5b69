"""What becomes of half messages, told to their brokers, and told again when an answer was lost.

CometMQ says so when it is told a second time. Apache RocketMQ does not: it stores a message for
every commit that it hears, and decides what comes together in any order. So a commit without an
answer is looked for in its topic before it is told again, and where rows of a queue have an order
the next one waits for the one before.
"""

import asyncio
import contextlib
import itertools
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from cometmq.client.cluster import text_fields
from cometmq.client.errors import (
    BrokerError,
    ClientError,
    NoRoute,
    ServiceNotAvailable,
    TopicNotFound,
    error_of,
)
from cometmq.client.link import Link, client_error
from cometmq.client.producer.results import STATUS_OF_CODE
from cometmq.client.producer.transactions import CheckFields, Decision, end_fields
from cometmq.protocol.codes import RequestCode, ResponseCode
from cometmq.protocol.command import Command, Request
from cometmq.protocol.names import HALF_TOPIC
from cometmq.transport.connection import Connection
from cometmq.transport.errors import RequestTimeout, TransportError

from ..errors import NotSent
from ..topic.patience import AWAY, patiently
from .halves import Half
from .options import Acknowledge, SinkOptions
from .sending import ANSWER_TIMEOUT_S
from .shown import Shown

AT_ONCE: Final = 256
DECIDED: Final = "decided already"
"""What our broker says to a second decision."""
SLAVE: Final = "is a slave"
"""What our slaves say to any; Apache's say nothing at all, with the same code."""
Outcome = Command | BaseException


class _Round:
    """Half messages that a broker is told of together."""

    def __init__(self, halves: Iterable[Half]) -> None:
        self.open = list(halves)
        """Not known to be decided."""
        self.told: set[Half] = set()
        """Whoever finds them decided may see our own decision."""
        self.unanswered: set[Half] = set()
        self.was_tried = False

    def close(self, decided: Iterable[Half]) -> None:
        gone = set(decided)
        self.open = [half for half in self.open if half not in gone]
        self.unanswered -= gone


class Decisions:
    """Tells brokers. The link is started."""

    def __init__(self, link: Link, options: SinkOptions, shown: Shown, *, is_ordered: bool) -> None:
        """`is_ordered`: whether rows of one queue are to be shown in their order."""
        self._link = link
        self._options = options
        self._shown = shown
        self._is_ordered = is_ordered

    async def commit(self, halves: Sequence[Half]) -> None:
        """NotSent if a broker does not follow: then some are committed, some are not."""
        await self._tell_all(halves, Decision.COMMIT)

    async def roll_back(self, halves: Sequence[Half]) -> None:
        """Those that are decided already stay as they are."""
        await self._tell_all(halves, Decision.ROLLBACK)

    async def _tell_all(self, halves: Sequence[Half], decision: Decision) -> None:
        by_broker = defaultdict[str, list[Half]](list)
        for half in halves:
            by_broker[half.broker_name].append(half)
        await asyncio.gather(
            *(self._tell_broker(name, those, decision) for name, those in by_broker.items())
        )

    async def _tell_broker(self, name: str, halves: list[Half], decision: Decision) -> None:
        what = f"{decision.name.lower()} of {len(halves)} half messages at broker {name}"
        away = (*AWAY, ServiceNotAvailable, TopicNotFound)  # Unknown while its broker starts.
        is_ordered = self._is_ordered and decision is Decision.COMMIT
        try:
            for few in _rounds(halves, is_ordered=is_ordered):

                async def attempt(few: _Round = few) -> None:
                    await self._tell(name, few, decision)

                await patiently(attempt, what, away, self._options.send_timeout_s)
        except BrokerError as error:
            raise NotSent(f"{what}: {error}") from error

    async def _tell(self, name: str, few: _Round, decision: Decision) -> None:
        """All that are open; the first thing that is wrong, once all have an answer or none."""
        again, few.was_tried = few.was_tried, True
        topic = await self._routed(few.open[0].topic, decision)
        connection = await self._connection(name, topic, again=again)
        if decision is Decision.COMMIT:
            few.close(await self._shown.among_the_newest(few.unanswered, [name]))
        while few.open:
            outcomes = await self._outcomes(connection, few.open, decision)
            wrong = {
                half: error
                for half, outcome in outcomes.items()
                if (error := self._wrong(half, outcome, few, decision))
            }
            few.close(outcomes.keys() - wrong.keys())
            if wrong:
                raise next(iter(wrong.values()))

    async def _routed(self, topic: str, decision: Decision) -> str:
        """By whose route the broker is found. A rollback needs no topic, and may be told when that
        was deleted; not all brokers tell of the half messages' own from the beginning."""
        if decision is Decision.ROLLBACK:
            try:
                await self._link.routes.find(topic)
            except TopicNotFound:
                return HALF_TOPIC
        return topic

    async def _connection(self, name: str, topic: str, *, again: bool) -> Connection:
        """To the master, who may be another one when it has to be told again."""
        routes = self._link.routes
        if again:
            with contextlib.suppress(TopicNotFound):  # Its broker is away.
                await routes.refresh(topic)
        else:
            await routes.find(topic)
        address = routes.address_of(name)
        if address is None:
            await routes.refresh(topic)
            raise NoRoute(f"no master of broker {name} is known now")
        return await self._link.connection(address)

    async def _outcomes(
        self, connection: Connection, halves: Iterable[Half], decision: Decision
    ) -> dict[Half, Outcome]:
        """Of those that left; when a connection ends while some are asked, the rest did not."""
        asked: dict[Half, asyncio.Future[Command]] = {}
        try:
            for half in halves:
                asked[half] = connection.ask(self._request(half, decision), ANSWER_TIMEOUT_S)
        except TransportError as error:
            if not asked:
                raise client_error(error) from error
        outcomes = await asyncio.gather(*asked.values(), return_exceptions=True)
        if any(isinstance(outcome, RequestTimeout) for outcome in outcomes):
            connection.abort()  # TCP alone might need a quarter of an hour to notice.
        return dict(zip(asked, outcomes, strict=True))

    def _request(self, half: Half, decision: Decision) -> Request:
        place = CheckFields(
            half.queue_offset, half.physical_offset, half.topic, half.unique_id, half.broker_name
        )
        fields = end_fields(self._options.producer_group, place, half.unique_id, decision)
        return self._link.signed(Request(RequestCode.END_TRANSACTION, text_fields(fields)))

    def _wrong(
        self, half: Half, outcome: Outcome, few: _Round, decision: Decision
    ) -> ClientError | None:
        """Why the half message is not known to be decided so."""
        if isinstance(outcome, Command):
            error = self._refusal(half, outcome, decision, was_told=half in few.told)
        elif isinstance(outcome, TransportError):
            few.unanswered.add(half)
            error = client_error(outcome)
        else:
            raise outcome
        if error is not None:
            few.told.add(half)
        return error

    def _refusal(
        self, half: Half, answer: Command, decision: Decision, *, was_told: bool
    ) -> ClientError | None:
        remark, name = answer.remark or "", half.broker_name
        if answer.code == ResponseCode.SLAVE_NOT_AVAILABLE and (not remark or SLAVE in remark):
            return NoRoute(f"broker {name} {SLAVE} now")
        if answer.code == ResponseCode.SUCCESS or (
            answer.code in STATUS_OF_CODE
            and (decision is Decision.ROLLBACK or self._options.acknowledge is Acknowledge.STORED)
        ):
            return None
        if DECIDED in remark and (was_told or decision is Decision.ROLLBACK):
            return None
        return error_of(answer.code, answer.remark, name)


def _rounds(halves: Sequence[Half], *, is_ordered: bool) -> Iterator[_Round]:
    """In their order: many at once, but of each queue one at a time if it is ordered."""
    for group in _one_of_each_queue(halves) if is_ordered else (halves,):
        for start in range(0, len(group), AT_ONCE):
            yield _Round(group[start : start + AT_ONCE])


def _one_of_each_queue(halves: Sequence[Half]) -> Iterator[Sequence[Half]]:
    queues = defaultdict[tuple[str, int], list[Half]](list)
    for half in halves:
        queues[half.topic, half.queue_id].append(half)
    for group in itertools.zip_longest(*queues.values()):
        yield [half for half in group if half is not None]
