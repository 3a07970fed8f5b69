"""Half messages: stored by tasks, shown to consumers when the driver decides so.

A half message is known by where its broker keeps it. Decisions go to each broker in the order of
the rows, several under way at once, and are told again when an answer was lost.
"""

import asyncio
import itertools
from collections.abc import Sequence
from typing import Final, NamedTuple

from cometmq.client.cluster import text_fields
from cometmq.client.errors import BrokerError, BrokerFailed, NoRoute
from cometmq.client.link import Link, transport_errors
from cometmq.client.producer.results import SendAnswer
from cometmq.client.producer.transactions import CheckFields, Decision, end_fields
from cometmq.protocol.codes import RequestCode, ResponseCode
from cometmq.protocol.command import Command, Request
from cometmq.protocol.message_id import parse_offset_id

from ..errors import NotSent
from ..topic.patience import AWAY, patiently
from .options import SinkOptions
from .parcels import Parcel
from .sending import ANSWER_TIMEOUT_S

AT_ONCE: Final = 256
DECIDED: Final = "decided already"
"""What our broker says to a second decision."""


class Half(NamedTuple):
    topic: str
    broker_name: str
    queue_offset: int
    """In the queue of half messages."""
    physical_offset: int
    unique_id: str


def half_of(parcel: Parcel, answer: SendAnswer) -> Half:
    _, physical_offset = parse_offset_id(answer.msg_id)
    queue = parcel.queue
    return Half(
        queue.topic, queue.broker_name, answer.queue_offset, physical_offset, parcel.unique_id
    )


class Decisions:
    """Tells brokers what becomes of half messages. The link is started."""

    def __init__(self, link: Link, options: SinkOptions) -> None:
        self._link = link
        self._options = options

    async def commit(self, halves: Sequence[Half]) -> None:
        """NotSent if a broker does not follow: then some are committed, some are not."""
        await self._tell_all(halves, Decision.COMMIT)

    async def roll_back(self, halves: Sequence[Half]) -> None:
        """Those that are decided already stay as they are."""
        await self._tell_all(halves, Decision.ROLLBACK)

    async def _tell_all(self, halves: Sequence[Half], decision: Decision) -> None:
        by_broker = itertools.groupby(
            sorted(halves, key=lambda half: half.broker_name), lambda half: half.broker_name
        )
        await asyncio.gather(
            *(self._tell_broker(name, list(those), decision) for name, those in by_broker)
        )

    async def _tell_broker(self, name: str, halves: list[Half], decision: Decision) -> None:
        open_ones, told_before = halves, False

        async def attempt() -> None:
            nonlocal open_ones, told_before
            again, told_before = told_before, True
            while open_ones:
                await self._tell(name, open_ones[:AT_ONCE], decision, again=again)
                open_ones = open_ones[AT_ONCE:]

        what = f"{decision.name.lower()} of {len(halves)} half messages at broker {name}"
        try:
            await patiently(attempt, what, AWAY, self._options.send_timeout_s)
        except BrokerError as error:
            raise NotSent(f"{what}: {error}") from error

    async def _tell(
        self, name: str, halves: list[Half], decision: Decision, *, again: bool
    ) -> None:
        await self._link.routes.find(halves[0].topic)
        address = self._link.routes.address_of(name)
        if address is None:
            await self._link.routes.refresh(halves[0].topic)
            raise NoRoute(f"no master of broker {name} is known now")
        connection = await self._link.connection(address)
        with transport_errors():
            asked = [connection.ask(self._request(h, decision), ANSWER_TIMEOUT_S) for h in halves]
            answers = await asyncio.gather(*asked)
        for answer in answers:
            if not _is_followed(answer, decision, again=again):
                raise BrokerFailed(answer.remark, code=answer.code, peer=name)

    def _request(self, half: Half, decision: Decision) -> Request:
        place = CheckFields(
            half.queue_offset, half.physical_offset, half.topic, half.unique_id, half.broker_name
        )
        fields = end_fields(self._options.producer_group, place, half.unique_id, decision)
        return self._link.signed(Request(RequestCode.END_TRANSACTION, text_fields(fields)))


def _is_followed(answer: Command, decision: Decision, *, again: bool) -> bool:
    if answer.code == ResponseCode.SUCCESS:
        return True
    was_told = again or decision is Decision.ROLLBACK
    return was_told and DECIDED in (answer.remark or "")
