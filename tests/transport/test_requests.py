"""Requests and answers over one connection, in both directions."""

import asyncio
import logging

import msgspec
import pytest

from cometmq.protocol.codes import ResponseCode
from cometmq.protocol.command import Command, FrameParser, HeaderKind, Request, Response
from cometmq.transport.connection import REMARK_CHARS_MAX, Connection, Refusal
from cometmq.transport.dial import connect
from cometmq.transport.errors import ConnectionClosed, RequestTimeout, TransportError
from cometmq.transport.limits import Limits

from .peers import ECHO, NOBODY_KNOWS, Peer, Recording, as_binary, echo, framed, serving, until

FAIL = 11
LATER = 12
TIMEOUT_S = 20.0


class Numbered(msgspec.Struct):
    number: int


# -- answers -------------------------------------------------------------------------------------


async def test_frames_of_one_read_are_answered_in_one_write() -> None:
    connection, transport = Connection({ECHO: echo}, Limits()), Recording()
    connection.connection_made(transport)

    connection.data_received(b"".join(framed(ECHO, number, b"x") for number in range(100)))
    await asyncio.sleep(0)

    assert len(transport.writes) == 1
    answers = FrameParser().feed(transport.writes[0])
    assert [answer.opaque for answer in answers] == list(range(100))


async def test_answers_that_become_ready_together_leave_in_one_write() -> None:
    ready = asyncio.get_running_loop().create_future()

    async def later(_: Connection, __: Command) -> Response:
        await ready
        return Response()

    connection, transport = Connection({LATER: later}, Limits()), Recording()
    connection.connection_made(transport)
    connection.data_received(b"".join(framed(LATER, number) for number in range(50)))
    await asyncio.sleep(0)
    assert transport.writes == []

    ready.set_result(None)
    await until(lambda: not connection.is_busy)

    assert len(transport.writes) == 1
    assert len(FrameParser().feed(transport.writes[0])) == 50


async def test_many_frames_in_one_write_are_all_answered() -> None:
    async with serving() as (_, address):
        with await Peer.to(address) as peer:
            await peer.send(b"".join(framed(ECHO, number, b"x" * 100) for number in range(5000)))
            answers = await peer.answers(5000)

    assert [answer.opaque for answer in answers] == list(range(5000))
    assert {(answer.code, answer.body, answer.is_response) for answer in answers} == {
        (0, b"x" * 100, True)
    }


async def test_an_answer_has_the_kind_of_header_of_its_request() -> None:
    async with serving() as (_, address):
        with await Peer.to(address) as peer:
            await peer.send(as_binary(ECHO, 1) + framed(ECHO, 2) + as_binary(NOBODY_KNOWS, 3))
            answers = await peer.answers(3)

    assert [answer.kind for answer in answers] == [
        HeaderKind.BINARY,
        HeaderKind.JSON,
        HeaderKind.BINARY,
    ]
    assert [answer.opaque for answer in answers] == [1, 2, 3]


async def test_a_code_without_handler_is_answered_with_3() -> None:
    async with serving() as (_, address):
        with await Peer.to(address) as peer:
            await peer.send(framed(NOBODY_KNOWS, 7))
            answer = await peer.answer()

    assert (answer.code, answer.opaque) == (ResponseCode.REQUEST_CODE_NOT_SUPPORTED, 7)
    assert answer.remark == " request type 9999 not supported"


@pytest.mark.parametrize("at_once", [True, False])
async def test_a_handler_that_fails_is_answered_with_1_and_logged(
    at_once: bool, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(_: Connection, __: Command) -> Response:
        raise KeyError("x" * 5000)

    async def fail_later(_: Connection, __: Command) -> Response:
        await asyncio.sleep(0)
        raise KeyError("x" * 5000)

    async with serving({FAIL: fail if at_once else fail_later, ECHO: echo}) as (_, address):
        with await Peer.to(address) as peer:
            await peer.send(framed(FAIL, 1))
            answer = await peer.answer()
            await peer.send(framed(ECHO, 2))
            assert (await peer.answer()).code == 0

    assert (answer.code, answer.opaque) == (ResponseCode.SYSTEM_ERROR, 1)
    assert answer.remark is not None
    assert answer.remark.startswith("KeyError: 'xxx")
    assert len(answer.remark) == REMARK_CHARS_MAX
    assert [record.message for record in caplog.records] == ["request 11 failed"]


@pytest.mark.parametrize("at_once", [True, False])
async def test_a_refusal_is_answered_with_its_own_code_and_fields(at_once: bool) -> None:
    refusal = Refusal(ResponseCode.TOPIC_NOT_EXIST, "no topic t", {"topic": "t"})

    def refuse(_: Connection, __: Command) -> Response:
        raise refusal

    async def refuse_later(_: Connection, __: Command) -> Response:
        raise refusal

    async with serving({FAIL: refuse if at_once else refuse_later}) as (_, address):
        with await Peer.to(address) as peer:
            await peer.send(framed(FAIL, 1))
            answer = await peer.answer()

    assert (answer.code, answer.remark) == (ResponseCode.TOPIC_NOT_EXIST, "no topic t")
    assert answer.text_fields() == {"topic": "t"}


async def test_fields_that_are_wrong_are_the_peers_fault_and_not_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def read(_: Connection, command: Command) -> Response:
        return Response(0, str(command.fields(Numbered).number))

    caplog.set_level(logging.INFO)
    async with serving({FAIL: read}) as (_, address):
        with await Peer.to(address) as peer:
            await peer.send(framed(FAIL, 1, fields={"number": "many"}))
            wrong = await peer.answer()
            await peer.send(framed(FAIL, 2, fields={"number": "5"}))
            assert (await peer.answer()).remark == "5"

    assert wrong.code == ResponseCode.SYSTEM_ERROR
    assert wrong.remark is not None
    assert wrong.remark.startswith("request 11: Expected `int`")
    assert caplog.records == []


@pytest.mark.parametrize(
    "remark", ["lone \udc80 surrogate", "x" * 2**24], ids=["surrogate", "too long"]
)
@pytest.mark.parametrize("sent", [framed(FAIL, 1), as_binary(FAIL, 1)], ids=["json", "binary"])
async def test_an_answer_that_cannot_be_encoded_becomes_an_error(remark: str, sent: bytes) -> None:
    async with serving({FAIL: lambda *_: Response(0, remark)}) as (_, address):
        with await Peer.to(address) as peer:
            await peer.send(sent)
            answer = await peer.answer()

    assert (answer.code, answer.opaque) == (ResponseCode.SYSTEM_ERROR, 1)


@pytest.mark.parametrize("oneway", [True, False])
async def test_one_way_requests_get_no_answer_not_even_an_error(oneway: bool) -> None:
    handled: list[int] = []

    def fail(_: Connection, command: Command) -> Response:
        handled.append(command.opaque)
        raise OSError("disk on fire")

    async def fail_later(_: Connection, command: Command) -> Response:
        handled.append(command.opaque)
        raise OSError("disk on fire")

    async with serving({ECHO: echo, FAIL: fail, LATER: fail_later}) as (_, address):
        with await Peer.to(address) as peer:
            codes = [ECHO, NOBODY_KNOWS, FAIL, LATER]
            sent = [framed(code, number, oneway=oneway) for number, code in enumerate(codes)]
            await peer.send(b"".join(sent))
            await until(lambda: len(handled) == 2)
            await peer.send(framed(ECHO, 9))
            answers = await peer.answers(1 if oneway else 5)

    opaques = sorted(answer.opaque for answer in answers)
    assert opaques == ([9] if oneway else [0, 1, 2, 3, 9])


async def test_answers_come_when_they_are_ready_and_are_known_by_their_number() -> None:
    waiting: dict[int, asyncio.Future[Response]] = {}

    def later(_: Connection, command: Command) -> asyncio.Future[Response]:
        return waiting.setdefault(command.opaque, asyncio.get_running_loop().create_future())

    async with serving({LATER: later, ECHO: echo}) as (_, address):
        with await Peer.to(address) as peer:
            await peer.send(framed(LATER, 1) + framed(LATER, 2) + framed(ECHO, 3))
            first = await peer.answer()
            waiting[2].set_result(Response(0, "two"))
            second = await peer.answer()
            waiting[1].set_result(Response(0, "one"))
            third = await peer.answer()

    assert [answer.opaque for answer in (first, second, third)] == [3, 2, 1]
    assert [second.remark, third.remark] == ["two", "one"]


async def test_a_handler_may_keep_a_request_and_answer_it_itself() -> None:
    kept: list[tuple[Connection, Command]] = []

    def keep(connection: Connection, command: Command) -> None:
        kept.append((connection, command))

    async with serving({LATER: keep}) as (_, address):
        with await Peer.to(address) as peer:
            await peer.send(framed(LATER, 5))
            await until(lambda: kept)
            connection, command = kept[0]
            connection.answer(command, Response(19, "nothing new"))
            answer = await peer.answer()
        await until(lambda: not connection.is_open)
        connection.answer(command, Response(0))  # goes nowhere, and harms nobody

    assert (answer.code, answer.opaque) == (19, 5)


# -- frames that are none ------------------------------------------------------------------------


@pytest.mark.parametrize(
    "garbage",
    [
        b"GET / HTTP/1.1\r\nHost: broker\r\n\r\n",
        b"\0\0\0\x05\0\0\0\x01{",
        b"\xff" * 64,
        b"\0" * 64,
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
    ],
    ids=["http", "short", "ones", "zeros", "tls"],
)
async def test_a_malformed_frame_closes_only_its_own_connection(garbage: bytes) -> None:
    async with serving() as (_, address):
        with await Peer.to(address) as good, await Peer.to(address) as bad:
            await good.send(framed(ECHO, 1))
            assert (await good.answer()).opaque == 1
            await bad.send(garbage)
            assert await bad.rest() == []
            await good.send(framed(ECHO, 2))
            assert (await good.answer()).opaque == 2


async def test_requests_ahead_of_a_malformed_frame_are_answered_before_the_end() -> None:
    async with serving() as (_, address):
        with await Peer.to(address) as peer:
            await peer.send(framed(ECHO, 1) + framed(ECHO, 2) + bytes(8) + framed(ECHO, 3))
            answers = await peer.rest()

    assert [answer.opaque for answer in answers] == [1, 2]


# -- requests of the server ----------------------------------------------------------------------


async def test_server_and_client_ask_each_other_over_one_connection() -> None:
    async def ask_back(connection: Connection, command: Command) -> Response:
        back = await connection.request(Request(ECHO, {"from": "server"}, command.body), TIMEOUT_S)
        return Response(0, back.remark, back.text_fields(), back.body)

    def shout(_: Connection, command: Command) -> Response:
        return Response(0, "heard", command.text_fields(), command.body.upper())

    async with serving({LATER: ask_back}) as (_, address):
        connection = await connect(str(address), {ECHO: shout})
        try:
            answers = await asyncio.gather(
                *(
                    connection.request(Request(LATER, {}, b"n%d" % number), TIMEOUT_S)
                    for number in range(100)
                )
            )
        finally:
            connection.close()

    assert [answer.body for answer in answers] == [b"N%d" % number for number in range(100)]
    assert answers[0].text_fields() == {"from": "server"}


async def test_the_server_tells_and_wants_no_answer() -> None:
    told: list[Command] = []

    def tell_back(connection: Connection, _: Command) -> Response:
        connection.tell(Request(40, {"consumerGroup": "g"}))
        return Response()

    def listen(_: Connection, command: Command) -> Response:
        told.append(command)
        return Response()

    async with serving({LATER: tell_back}) as (server, address):
        connection = await connect(str(address), {40: listen})
        await connection.request(Request(LATER), TIMEOUT_S)
        await until(lambda: told)
        (other_end,) = server.connections
        other_end.tell(Request(40))
        await until(lambda: len(told) == 2)
        connection.close()
        await until(lambda: not other_end.is_open)
        other_end.tell(Request(40))  # goes nowhere, and harms nobody

    assert all(command.is_oneway for command in told)
    assert told[0].text_fields() == {"consumerGroup": "g"}


async def test_a_request_without_answer_ends_in_time_and_a_late_answer_is_ignored() -> None:
    kept: list[tuple[Connection, Command]] = []

    def keep(connection: Connection, command: Command) -> None:
        kept.append((connection, command))

    async with serving({LATER: keep, ECHO: echo}) as (_, address):
        connection = await connect(str(address))
        with pytest.raises(RequestTimeout, match=r"to request 12 within 0\.05 s"):
            await connection.request(Request(LATER), 0.05)
        kept[0][0].answer(kept[0][1], Response(0, "late"))
        answer = await connection.request(Request(ECHO, {}, b"next"), TIMEOUT_S)
        connection.close()

    assert answer.body == b"next"


@pytest.mark.parametrize("who", ["server", "client"])
async def test_who_waits_for_an_answer_learns_that_the_connection_was_closed(who: str) -> None:
    async with serving({LATER: lambda *_: None}) as (server, address):
        connection = await connect(str(address))
        waiting = [
            asyncio.create_task(connection.request(Request(LATER), TIMEOUT_S)) for _ in range(3)
        ]
        await until(lambda: server.connections)
        (server.connections.copy().pop() if who == "server" else connection).abort()
        outcomes = await asyncio.gather(*waiting, return_exceptions=True)
        with pytest.raises(ConnectionClosed):
            await connection.request(Request(LATER), TIMEOUT_S)

    assert [type(outcome) for outcome in outcomes] == [ConnectionClosed] * 3
    assert str(address) in str(outcomes[0])


async def test_requests_that_wait_are_limited() -> None:
    async with serving({LATER: lambda *_: None}, pending_max=2) as (server, address):
        with await Peer.to(address) as peer:
            await until(lambda: server.connections)
            (connection,) = server.connections
            waiting = [
                asyncio.create_task(connection.request(Request(39), TIMEOUT_S)) for _ in range(2)
            ]
            asked = await peer.answers(2)
            with pytest.raises(TransportError, match=r"2 requests .* wait"):
                await connection.request(Request(39), TIMEOUT_S)
            for task in waiting:
                task.cancel()
            await asyncio.gather(*waiting, return_exceptions=True)
            with pytest.raises(RequestTimeout):
                await connection.request(Request(39), 0.01)

    assert [(command.code, command.is_response) for command in asked] == [(39, False)] * 2


async def test_an_answer_that_nobody_waits_for_is_ignored() -> None:
    stray = b"".join(framed(ECHO, number).replace(b'"flag":0', b'"flag":1') for number in range(9))
    async with serving() as (_, address):
        with await Peer.to(address) as peer:
            await peer.send(stray + framed(ECHO, 100))
            assert (await peer.answer()).opaque == 100


# -- its end -------------------------------------------------------------------------------------


async def test_who_is_interested_learns_of_the_end_once() -> None:
    closed: list[Connection] = []
    async with serving(on_close=closed.append) as (server, address):
        with await Peer.to(address) as peer:
            await peer.send(framed(ECHO, 1))
            await peer.answer()
            (connection,) = server.connections
            connection.state["clientId"] = "c1"
        await until(lambda: closed)

        assert closed == [connection]
        assert closed[0].state == {"clientId": "c1"}
        assert not connection.is_open
        assert server.connections == set()


async def test_handlers_at_work_when_the_peer_leaves_end_quietly(
    caplog: pytest.LogCaptureFixture,
) -> None:
    ready = asyncio.get_running_loop().create_future()
    done: list[int] = []

    async def later(_: Connection, command: Command) -> Response:
        await ready
        done.append(command.opaque)
        return Response()

    async with serving({LATER: later}) as (server, address):
        with await Peer.to(address) as peer:
            await peer.send(framed(LATER, 1))
            await until(lambda: any(connection.is_busy for connection in server.connections))
        await until(lambda: not server.connections)
        ready.set_result(None)
        await until(lambda: done)

    assert caplog.records == []
