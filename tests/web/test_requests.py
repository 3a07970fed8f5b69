"""HTTP as probes and scrapes speak it, whatever way its bytes are split."""

from http import HTTPStatus

import pytest

from cometmq.web.requests import HEAD_BYTES_MAX, Answer, BadRequest, Request, RequestParser, encoded

SCRAPE = (
    b"GET /metrics?x=1 HTTP/1.1\r\nHost: a:5557\r\nUser-Agent: Prometheus/3.0\r\n"
    b"Accept-Encoding: gzip\r\n\r\n"
)


def parsed(data: bytes) -> Request | None:
    parser = RequestParser()
    parser.feed(data)
    return parser.next()


def test_a_request_is_its_path_and_whether_the_connection_stays() -> None:
    assert parsed(SCRAPE) == Request("/metrics", is_head=False, keeps_alive=True)
    assert parsed(b"HEAD / HTTP/1.1\r\nConnection: close\r\n\r\n") == Request("/", True, False)
    assert parsed(b"GET / HTTP/1.0\r\n\r\n") == Request("/", False, False)


def test_a_request_comes_in_any_pieces_and_several_at_once() -> None:
    parser = RequestParser()
    for place in range(len(SCRAPE) - 1):
        parser.feed(SCRAPE[place : place + 1])
        assert parser.next() is None
    parser.feed(SCRAPE[-1:] + b"GET /ready HTTP/1.1\r\n\r\nGET /he")
    assert [parser.next(), parser.next(), parser.next()] == [
        Request("/metrics", False, True), Request("/ready", False, True), None,
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("data", "status"),
    [
        (b"POST / HTTP/1.1\r\n\r\n", 405),
        (b"GET / HTTP/1.1\r\nContent-Length: 3\r\n\r\nabc", 400),
        (b"GET / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nno colon\r\n\r\n", 400),
        (b"GET /\r\n\r\n", 400),
        (b"GET / HTTP/2.0\r\n\r\n", 400),
        (b"\x16\x03\x01\x02\x00\r\n\r\n", 400),
        (b"GET /" + b"x" * HEAD_BYTES_MAX, 431),
    ],
)
def test_anything_else_is_refused(data: bytes, status: int) -> None:
    with pytest.raises(BadRequest) as refusal:
        parsed(data)
    assert refusal.value.answer.status == status


def test_an_answer_says_how_long_it_is_also_without_its_body() -> None:
    answer = Answer(HTTPStatus.OK, b"alive\n")
    whole = encoded(answer, keeps_alive=True)
    assert whole.startswith(b"HTTP/1.1 200 OK\r\n")
    assert whole.endswith(b"Content-Length: 6\r\nCache-Control: no-store\r\n"
                          b"Connection: keep-alive\r\n\r\nalive\n")  # fmt: skip
    assert encoded(answer, is_head=True, keeps_alive=True) == whole[: -len(b"alive\n")]
