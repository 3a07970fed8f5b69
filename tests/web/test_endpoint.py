"""The endpoint answers whoever asks, and lets nobody hold it up."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from http import HTTPStatus

import pytest

from cometmq.web import endpoint as module
from cometmq.web.endpoint import CONNECTIONS_MAX, Endpoint
from cometmq.web.requests import Answer
from tests.broker.brokers import bounded, until
from tests.web.scrapes import exchanged, fetched


class Pages:
    def __init__(self) -> None:
        self.may_answer = asyncio.Event()
        self.asked = 0

    async def slow(self) -> Answer:
        self.asked += 1
        await self.may_answer.wait()
        return Answer(HTTPStatus.OK, b"slow\n")

    async def quick(self) -> Answer:
        return Answer(HTTPStatus.OK, b"quick\n")

    async def broken(self) -> Answer:
        raise RuntimeError("no such figure")


@contextlib.asynccontextmanager
async def serving() -> AsyncIterator[tuple[str, Pages]]:
    pages = Pages()
    endpoint = Endpoint({"/slow": pages.slow, "/quick": pages.quick, "/broken": pages.broken})
    address = await endpoint.listen("127.0.0.1", 0)
    try:
        yield str(address), pages
    finally:
        endpoint.stop()
        await asyncio.sleep(0)  # Connections hear of it.


@bounded
async def test_pages_are_answered_and_what_is_not_there_is_told() -> None:
    async with serving() as (address, _):
        assert (await fetched(address, "/quick")).body == b"quick\n"
        missing = await fetched(address, "/other")
        assert (missing.status, missing.body) == (
            404, b"not here; there is /broken /quick /slow\n",
        )  # fmt: skip
        head = await fetched(address, "/quick", "HEAD")
        assert (head.status, head.fields["Content-Length"], head.body) == (200, "6", b"")


@bounded
async def test_a_page_that_breaks_is_an_error_of_the_server(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with serving() as (address, _):
        assert (await fetched(address, "/broken")).status == 500
        # Not caplog.text: PySpark's loggers, once there, give pytest's handler their own format.
        said = [record.exc_info for record in caplog.records if record.exc_info]
        assert [str(info[1]) for info in said] == ["no such figure"]


@bounded
async def test_requests_of_one_connection_are_answered_in_turn() -> None:
    async with serving() as (address, pages):
        request = b"GET /slow HTTP/1.1\r\n\r\nGET /quick HTTP/1.1\r\nConnection: close\r\n\r\n"
        answers = asyncio.create_task(exchanged(address, request))
        await until(lambda: pages.asked)
        assert (await fetched(address, "/quick")).body == b"quick\n", "others are not held up"
        pages.may_answer.set()
        said = await answers
        assert said.index(b"slow\n") < said.index(b"quick\n")
        assert said.count(b"HTTP/1.1 200 OK") == 2


@bounded
async def test_nonsense_is_answered_and_the_connection_closed() -> None:
    async with serving() as (address, _):
        said = await exchanged(address, b"\x00\x01\r\n\r\nGET /quick HTTP/1.1\r\n\r\n")
        assert said.startswith(b"HTTP/1.1 400 Bad Request")
        assert b"quick" not in said


@bounded
async def test_too_many_visitors_are_turned_away_and_room_comes_back() -> None:
    async with serving() as (address, _):
        host, _, port = address.rpartition(":")
        idle = [await asyncio.open_connection(host, int(port)) for _ in range(CONNECTIONS_MAX)]
        with pytest.raises((ConnectionError, IndexError)):
            await fetched(address, "/quick")
        idle[0][1].close()
        await idle[0][1].wait_closed()

        async def is_served() -> bool:
            try:
                return (await fetched(address, "/quick")).status == 200
            except (ConnectionError, IndexError):
                return False

        while not await is_served():
            await asyncio.sleep(0.01)
        for _, writer in idle[1:]:
            writer.close()


@bounded
async def test_who_says_nothing_is_hung_up_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PATIENCE_S", 0.05)
    async with serving() as (address, _):
        host, _, port = address.rpartition(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        with contextlib.suppress(ConnectionResetError):
            assert await reader.read() == b""
        writer.close()


@bounded
async def test_who_leaves_is_not_worked_for() -> None:
    async with serving() as (address, pages):
        host, _, port = address.rpartition(":")
        _, writer = await asyncio.open_connection(host, int(port))
        writer.write(b"GET /slow HTTP/1.1\r\n\r\n")
        await until(lambda: pages.asked)
        assert len(asyncio.all_tasks()) > 1
        before = asyncio.all_tasks()
        writer.transport.abort()
        await until(lambda: any(task.cancelled() or task.done() for task in before))
