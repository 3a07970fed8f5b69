"""Topic names: RocketMQ's rules, checked before a name becomes a directory."""

import pytest

from cometmq.protocol.errors import IllegalMessage
from cometmq.protocol.names import check_topic


@pytest.mark.parametrize(
    "name",
    [
        "orders",
        "A-b_9",
        "%RETRY%group",
        "%DLQ%group",
        "INSTANCE%topic",
        "a|b",
        "x" * 127,
        "%RETRY%" + "g" * 248,
        "%DLQ%" + "g" * 250,
    ],
)
def test_good_names_pass_unchanged(name: str) -> None:
    assert check_topic(name) == name


@pytest.mark.parametrize(
    "name",
    [
        "",
        " ",
        "a b",
        "a\n",
        "\n",
        "../x",
        "a/b",
        "a\\b",
        "a.b",
        "a:b",
        "a\0",
        "订单",
        "é",
        "a*",
        "٣",
    ],
)
def test_names_with_other_characters_are_refused(name: str) -> None:
    with pytest.raises(IllegalMessage, match=r"only letters, digits, and % \| - _ are allowed"):
        check_topic(name)


@pytest.mark.parametrize(
    ("name", "limit"),
    [
        ("x" * 128, 127),
        ("x%RETRY%" + "g" * 120, 127),
        ("%RETRY%" + "g" * 249, 255),
        ("%DLQ%" + "g" * 251, 255),
    ],
)
def test_names_that_are_too_long_are_refused_with_the_limit(name: str, limit: int) -> None:
    with pytest.raises(
        IllegalMessage, match=f"has {len(name)} characters, {limit} are allowed"
    ) as raised:
        check_topic(name)
    assert name not in str(raised.value)
