"""Damaged requests by the thousand: a server answers, or closes the one connection, and goes on."""

import logging
import os

import msgspec
import pytest

from cometmq.protocol.codes import RequestCode
from cometmq.protocol.command import Command, Response
from cometmq.transport.connection import Connection, Handler

from .mutants import Mutants, whole
from .peers import ECHO, Peer, echo, framed, serving, until
from .seeds import SEEDS
from .storm import storm

FRAMES = 20_000
SEED = int(os.environ.get("COMETMQ_FUZZ_SEED", "1"))


class Asked(msgspec.Struct):
    """Fields as handlers declare them."""

    topic: str
    queue_id: int = msgspec.field(name="queueId", default=0)
    order: bool = False
    consumer_group: str | None = msgspec.field(name="consumerGroup", default=None)


def typed(_: Connection, command: Command) -> Response:
    asked = command.fields(Asked)
    return Response(0, asked.topic[:100], {"queueId": str(asked.queue_id)})


async def later(_: Connection, command: Command) -> Response:
    return Response(0, None, command.text_fields(), command.body)


HANDLERS: dict[int, Handler] = {
    code: (typed, later, echo)[number % 3] for number, code in enumerate(sorted(RequestCode))
}


def test_every_code_has_a_plausible_request() -> None:
    assert {seed.code for seed in SEEDS} == set(RequestCode)


def test_the_same_seed_makes_the_same_mutants() -> None:
    one, same, other = Mutants(7), Mutants(7), Mutants(8)

    frames = [one.misfit() for _ in range(200)] + [one.wreck() for _ in range(200)]

    assert [same.misfit() for _ in range(200)] + [same.wreck() for _ in range(200)] == frames
    assert [other.misfit() for _ in range(200)] != frames[:200]


async def test_plausible_requests_are_all_answered() -> None:
    async with serving(dict.fromkeys(RequestCode, echo)) as (_, address):
        with await Peer.to(address) as peer:
            await peer.send(b"".join(whole(seed, number) for number, seed in enumerate(SEEDS)))
            answers = await peer.answers(len(SEEDS))

    assert [answer.code for answer in answers] == [0] * len(SEEDS)
    for seed, answer in zip(SEEDS, answers, strict=True):
        assert (answer.text_fields(), answer.body) == (dict(seed.fields), seed.body)


async def test_mutants_harm_nobody_but_their_own_connection(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.ERROR)
    async with serving(HANDLERS) as (server, address):
        with await Peer.to(address) as bystander:
            await storm(address, SEED, FRAMES)
            await bystander.send(framed(ECHO, 1, b"still there"))
            assert (await bystander.answer()).opaque == 1
        await until(lambda: not server.connections)

    assert caplog.records == []
