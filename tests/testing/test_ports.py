"""Ports that are reserved stay so, and the second ones beside them."""

import contextlib
import socket

import pytest

from cometmq.testing.ports import LOOPBACK, ReservedPort, bound_socket


def listens(port: int) -> socket.socket:
    listener = socket.socket()
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind((LOOPBACK, port))
    listener.listen()
    return listener


def test_a_port_whose_second_one_is_taken_is_not_given_out(monkeypatch: pytest.MonkeyPatch) -> None:
    with contextlib.closing(bound_socket(0)) as free, contextlib.closing(socket.socket()) as taken:
        taken.bind((LOOPBACK, 0))
        taken.listen()
        upper = taken.getsockname()[1] + 2
        first_choices = iter([upper, free.getsockname()[1]])

        def chosen(port: int) -> socket.socket:
            return bound_socket(port or next(first_choices, 0))

        monkeypatch.setattr("cometmq.testing.ports.bound_socket", chosen)
        reserved = ReservedPort(2)
        assert reserved.number != upper
        for port in (reserved.number, reserved.number - 2):
            listens(port).close()
        reserved.release()
