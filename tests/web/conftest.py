"""Coroutine tests and brokers without sockets, as in the tests of the broker."""

from tests.broker.conftest import clock, desk, pytest_generate_tests, pytest_pyfunc_call

__all__ = ["clock", "desk", "pytest_generate_tests", "pytest_pyfunc_call"]
