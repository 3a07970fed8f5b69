"""Attributes of topics: what a change makes of them, and which changes are refused."""

import pytest

from cometmq.broker.admin.attributes import TOPIC_ATTRIBUTES, changed_attributes, parse_changes


def after(text: str, current: dict[str, str] | None = None) -> dict[str, str]:
    return changed_attributes(current, parse_changes(text), TOPIC_ATTRIBUTES)


@pytest.mark.parametrize(
    ("text", "current", "expected"),
    [
        ("", None, {}),
        ("", {"message.type": "FIFO"}, {"message.type": "FIFO"}),
        ("+message.type=FIFO", None, {"message.type": "FIFO"}),
        ("+message.type=FIFO", {"message.type": "NORMAL"}, {"message.type": "FIFO"}),
        ("-message.type", {"message.type": "FIFO", "reserve.time": "7"}, {"reserve.time": "7"}),
        ("+reserve.time=-1,+message.type=DELAY", {},
         {"reserve.time": "-1", "message.type": "DELAY"}),
        ("+queue.type=SimpleCQ,+cleanup.policy=DELETE", None,
         {"queue.type": "SimpleCQ", "cleanup.policy": "DELETE"}),
    ],
)  # fmt: skip
def test_a_change_sets_and_removes(
    text: str, current: dict[str, str] | None, expected: dict[str, str]
) -> None:
    assert after(text, current) == expected


@pytest.mark.parametrize(
    ("text", "current", "said"),
    [
        ("message.type=FIFO", None, r"neither \+key=value nor -key"),
        ("+message.type", None, r"neither \+key=value nor -key"),
        ("+message.type=FIFO,+message.type=NORMAL", None, "twice"),
        ("+message.type=FIFO,-message.type", {"message.type": "FIFO"}, "both set and removed"),
        ("+message.type=BOGUS", None, r"value is not in set: \[NORMAL, FIFO"),
        ("+message.type=LITE", None, "this version has no such topics"),
        ("+colour=red", None, "unsupported key: colour; message.type, "),
        ("-message.type", {}, "it is not set"),
        ("-message.type", None, "it is not set"),
        ("+queue.type=SimpleCQ", {}, "cannot be changed later"),
        ("+queue.type=BatchCQ", None, "this version has SimpleCQ only"),
        ("+cleanup.policy=COMPACTION", None, "this version has DELETE only"),
        ("+cleanup.policy=SHREDDER", None, r"value is not in set: \[DELETE, COMPACTION\]"),
        ("+reserve.time=soon", None, "a number from -1 on"),
        ("+reserve.time=-2", None, "a number from -1 on"),
        ("+reserve.time=9223372036854775808", None, "a number from -1 on"),
    ],
)
def test_a_change_that_cannot_be_is_refused_by_name(
    text: str, current: dict[str, str] | None, said: str
) -> None:
    with pytest.raises(ValueError, match=said):
        after(text, current)


def test_keys_of_a_map_need_their_sign() -> None:
    with pytest.raises(ValueError, match=r"\+key or -key is expected"):
        changed_attributes(None, {"message.type": "FIFO"}, TOPIC_ATTRIBUTES)
