"""Numbers of requests: each fits into what records, files and Java can hold."""

import inspect as python
from collections.abc import Iterator
from types import ModuleType

import msgspec
import pytest
from msgspec import inspect

from cometmq.protocol import (
    admin_headers,
    data_version,
    group_config,
    headers,
    heartbeat,
    message_queue,
    registration,
    subscription,
    topic_config,
)

MODULES = (
    admin_headers, data_version, group_config, headers, heartbeat, message_queue, registration,
    subscription, topic_config,
)  # fmt: skip


def structures(module: ModuleType) -> Iterator[type[msgspec.Struct]]:
    for _, found in python.getmembers(module, python.isclass):
        if issubclass(found, msgspec.Struct) and found.__module__ == module.__name__:
            yield found


def whole_numbers(kind: inspect.Type) -> Iterator[inspect.IntType]:
    """All numbers that a type takes, itself or inside of it."""
    match kind:
        case inspect.IntType():
            yield kind
        case inspect.UnionType():
            for option in kind.types:
                yield from whole_numbers(option)
        case inspect.ListType() | inspect.SetType():
            yield from whole_numbers(kind.item_type)
        case inspect.DictType():
            yield from whole_numbers(kind.key_type)
            yield from whole_numbers(kind.value_type)


@pytest.mark.parametrize("module", MODULES, ids=lambda module: module.__name__.split(".")[-1])
def test_every_number_of_a_request_has_a_bound(module: ModuleType) -> None:
    found = 0
    for structure in structures(module):
        described = inspect.type_info(structure)
        assert isinstance(described, inspect.StructType)
        for field in described.fields:
            for number in whole_numbers(field.type):
                found += 1
                bounds = (number.ge, number.le)
                assert bounds in ((-(2**31), 2**31 - 1), (-(2**63), 2**63 - 1)), (
                    f"{structure.__name__}.{field.name}"
                )
    assert found > 0
