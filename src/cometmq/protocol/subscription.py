"""What a consumer group wants of a topic, and the tags in it."""

import msgspec

from .java import string_hash
from .numbers import Int32, Int64

ALL = "*"
TAG = "TAG"
SQL92 = "SQL92"
EXPRESSION_CHARS_MAX = 16 * 1024
"""A filter is kept as long as its consumer is there."""


class SubscriptionData(msgspec.Struct, rename="camel"):
    topic: str
    sub_string: str = ALL
    tags_set: list[str] = []
    code_set: list[Int32] = []
    sub_version: Int64 = 0
    expression_type: str = TAG
    class_filter_mode: bool = False

    def tag_hashes(self) -> frozenset[int] | None:
        """The tags' hash codes as the ConsumeQueue keeps them; None when every message counts."""
        if self.sub_string in (ALL, "") or self.expression_type not in (TAG, ""):
            return None
        return frozenset(self.code_set or map(string_hash, split_tags(self.sub_string)))


def split_tags(expression: str) -> list[str]:
    """The tags of `A || B`. ValueError when there are none, or far too many."""
    if len(expression) > EXPRESSION_CHARS_MAX:
        raise ValueError(
            f"a filter of {len(expression)} characters; {EXPRESSION_CHARS_MAX} are allowed"
        )
    tags = [tag.strip() for tag in expression.split("||")]
    tags = [tag for tag in tags if tag]
    if not tags:
        raise ValueError(f"{expression!r} has no tags: `A || B` does, `*` stands for all")
    return tags


def tag_subscription(topic: str, expression: str, version: int = 0) -> SubscriptionData:
    """A subscription by tags as clients build it."""
    if expression in ("", ALL):
        return SubscriptionData(topic, ALL, sub_version=version)
    tags = split_tags(expression)
    return SubscriptionData(topic, expression, tags, [string_hash(tag) for tag in tags], version)
