"""Errors: a class for each answer that a broker gives, and words that say what to do."""

import pytest

from cometmq.client import errors
from cometmq.client.errors import BrokerError, ClientError, error_of
from cometmq.protocol.codes import ResponseCode

REFUSALS = [code for code in ResponseCode if code is not ResponseCode.SUCCESS]
APACHE_ONLY = [4, 215, 501, 1500, 3001, 3002]
CLASSES = [
    kind
    for kind in vars(errors).values()
    if isinstance(kind, type) and issubclass(kind, ClientError)
]


@pytest.mark.parametrize("code", [*REFUSALS, *APACHE_ONLY])
def test_every_answer_that_says_no_has_a_class_of_its_own(code: int) -> None:
    error = error_of(code, "because", "127.0.0.1:10911")
    assert type(error) is not BrokerError
    assert error.code == code
    assert error.remark == "because"
    assert error.peer == "127.0.0.1:10911"
    said = f"answered by 127.0.0.1:10911 with code {int(code)}: because"
    assert str(error).startswith(said)


@pytest.mark.parametrize("code", [*REFUSALS, *APACHE_ONLY])
def test_every_answer_that_says_no_comes_with_advice(code: int) -> None:
    error = error_of(code, "because")
    assert error.advice
    assert str(error).endswith(f"; {error.advice}")


def test_an_unknown_code_is_told_as_it_is() -> None:
    error = error_of(4242, None)
    assert type(error) is BrokerError
    assert error.code == 4242
    assert str(error) == "answered with code 4242: BrokerError"


@pytest.mark.parametrize("kind", CLASSES)
def test_every_class_says_when_it_is_raised(kind: type[ClientError]) -> None:
    is_answer = issubclass(kind, BrokerError) and kind is not BrokerError
    assert kind.advice if is_answer else kind.__doc__  # type: ignore[attr-defined]


def test_codes_are_taken_once() -> None:
    codes = [kind.code for kind in BrokerError.__subclasses__()]
    assert len(codes) == len(set(codes))
