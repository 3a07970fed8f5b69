"""Coroutine tests run as those of the transport do, on every event loop."""

from tests.transport.conftest import pytest_generate_tests, pytest_pyfunc_call

__all__ = ["pytest_generate_tests", "pytest_pyfunc_call"]
