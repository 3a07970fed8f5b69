"""Java's hash of texts, on which tag filters and index files rest."""

import pytest

from cometmq.protocol.java import key_hash, string_hash, tag_key


@pytest.mark.parametrize(
    ("text", "hashed"),
    # From String.hashCode of Java 17.
    [
        ("", 0),
        ("TagA", 2598919),
        ("TagB", 2598920),
        ("polygenelubricants", -2147483648),
        ("标签", 857175),
        ("🚀 rocket", -1391342671),
        ("a*b||c", -1476109142),
        ("TopicTest#k1", 2746024),
        ("\x01\x02", 33),
    ],
)
def test_the_hash_is_that_of_java(text: str, hashed: int) -> None:
    assert string_hash(text) == hashed


@pytest.mark.parametrize("size", [511, 512, 513, 5000])
def test_a_long_text_is_hashed_like_a_short_one(size: int) -> None:
    text = ("标签 and tags " * size)[:size]
    expected = string_hash(text[:100]) * pow(31, size - 100, 1 << 32)
    for letter, power in zip(text[100:], range(size - 101, -1, -1), strict=True):
        expected += ord(letter) * pow(31, power, 1 << 32)
    assert (string_hash(text) - expected) % (1 << 32) == 0


def test_a_lone_surrogate_counts_as_one_unit() -> None:
    assert string_hash("\ud83d") == 0xD83D
    assert string_hash("\ud83d\ude80") == 0xD83D * 31 + 0xDE80


def test_a_key_is_hashed_together_with_its_topic() -> None:
    assert key_hash("TopicTest", "k1") == 2746024
    assert key_hash("a", "b#c") == key_hash("a#b", "c")


@pytest.mark.parametrize("text", ["7F0000010B6130946E094CEA932D00FF", "订单🚀 of two scripts 键"])
def test_a_key_of_any_length_has_the_hash_of_the_whole_text(text: str) -> None:
    for start in range(len(text)):
        for end in range(start, len(text) + 1):
            key = text[start:end]
            assert key_hash("orders", key) == abs(string_hash(f"orders#{key}"))


def test_a_tag_is_hashed_apart_from_a_key_of_the_same_text() -> None:
    # What RocketMQ 5.5.0 keeps in its index of the tag TagA.
    assert key_hash("TopicTest", tag_key("TagA")) == 0x4E293B58


def test_a_negative_hash_loses_its_sign() -> None:
    assert string_hash("%RETRY%g#k") == -1196730099
    assert key_hash("%RETRY%g", "k") == 1196730099


def test_the_one_hash_whose_sign_cannot_be_lost_is_0() -> None:
    # As IndexFile.indexKeyHashMethod of 5.5.0 does.
    assert string_hash("t#qolygtg") == -(1 << 31)
    assert key_hash("t", "qolygtg") == 0
