"""SQL92 filters: RocketMQ's answers to the same filters, limits, and text of all kinds."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cometmq.protocol import sql92
from cometmq.protocol.properties import decode_properties, encode_properties
from cometmq.protocol.sql92 import IllegalFilter
from cometmq.protocol.sql92.parser import DEPTH_MAX, TERMS_MAX
from cometmq.protocol.subscription import EXPRESSION_CHARS_MAX

from .sql92_answers import ANSWERS, FAILS, FALSE, REFUSED, TRUE, UNKNOWN, UNREAD, Answer


def answer_of(text: str, properties: dict[str, str]) -> Answer:
    """All four answers, though a filter only says whether it matches."""
    asked: dict[str, Answer] = {text: TRUE, f"NOT ({text})": FALSE, f"({text}) IS NULL": UNKNOWN}
    for question, answer in asked.items():
        if sql92.compile(question).matches(properties):
            return answer
    return FAILS


@pytest.mark.parametrize(("text", "answers"), ANSWERS, ids=[text for text, _ in ANSWERS])
def test_the_answer_is_rocketmqs(text: str, answers: list[tuple[dict[str, str], Answer]]) -> None:
    assert [(given, answer_of(text, given)) for given, _ in answers] == answers


@pytest.mark.parametrize(("text", "answers"), ANSWERS, ids=[text for text, _ in ANSWERS])
def test_encoded_properties_get_the_same_answer(
    text: str, answers: list[tuple[dict[str, str], Answer]]
) -> None:
    compiled = sql92.compile(text)
    for properties, answer in answers:
        encoded = encode_properties({"UNIQ_KEY": "0A1B", **properties, "WAIT": "true"})
        assert compiled.matches_encoded(encoded) is (answer is TRUE), properties


@pytest.mark.parametrize("text", REFUSED)
def test_what_rocketmq_refuses_is_refused(text: str) -> None:
    with pytest.raises(IllegalFilter):
        sql92.compile(text)


@pytest.mark.parametrize(("text", "rest", "properties", "answer"), UNREAD)
def test_what_follows_an_expression_is_ignored_but_told(
    text: str, rest: str, properties: dict[str, str], answer: Answer
) -> None:
    compiled = sql92.compile(text)
    assert compiled.unread == rest
    assert compiled.matches(properties) is (answer is TRUE)


def test_nothing_is_unread_of_a_whole_filter() -> None:
    assert sql92.compile("a = 1 /* one */ ").unread == ""


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("TRUE", set()),
        ("a = 1 AND b = a OR NOT C", {"a", "b", "C"}),
        ("TAGS IN ('x') AND -d IS NULL", {"TAGS", "d"}),
        ("a = 'b'", {"a"}),
        ("a = 1 b = 2", {"a"}),
    ],
)
def test_a_filter_names_the_properties_it_looks_at(text: str, names: set[str]) -> None:
    assert sql92.compile(text).names == names


@pytest.mark.parametrize(
    ("text", "character", "reason"),
    [
        ("a = ", 5, "expected a name, a literal or (, found the end"),
        ("a > 1 AND b ! 2", 13, "'!' does not belong into a filter"),
        ("a = 'x", 5, "a text without its closing quote"),
        ("a = 1 /* c", 7, "a comment without its end"),
        ("(a = 1", 7, "expected ), found the end"),
        ("a IS 5", 6, "expected NULL or NOT NULL, found '5'"),
        ("a BETWEEN 1 OR 2", 13, "expected the AND of BETWEEN, found 'OR'"),
        ("a BETWEEN 5 AND 1", 3, "BETWEEN 5 AND 1: the smaller one comes first"),
        ("a IN (1)", 7, "expected a text in single quotes, found '1'"),
        ("a IN ('x' 'y')", 11, """expected , or ), found "'y'\""""),
        ("1 IN ('x')", 3, "IN needs a property before it, not 1"),
        ("a NOT 5", 7, "expected BETWEEN, IN, CONTAINS, STARTSWITH or ENDSWITH, found '5'"),
        ("a > '5'", 3, "> compares properties and numbers, not '5'"),
        ("a = NULL", 3, "= and <> do not compare with NULL, IS NULL does"),
        ("TRUE = 1", 6, "TRUE cannot be compared with 1"),
        ("a = 1 AND 5", 11, "expected a condition, found 5"),
        ("a = 0.0", 5, "'0.0' is not within 4.9E-324 and 1.8E308"),
        ("a = 9223372036854775808", 5, "'9223372036854775808' is greater than 9223372036854775807"),
    ],
)
def test_a_refusal_says_where_and_why(text: str, character: int, reason: str) -> None:
    with pytest.raises(IllegalFilter) as refused:
        sql92.compile(text)
    assert str(refused.value) == f"SQL92 filter, at character {character}: {reason}"
    assert refused.value.at == character - 1


def test_a_refusal_stays_short_and_can_be_sent_whatever_the_filter_holds() -> None:
    for text in ("'" + "x" * 10_000 + "'", "1 IN ('" + "x" * 10_000, "\ud800", "-" + "x" * 10_000):
        with pytest.raises(IllegalFilter) as refused:
            sql92.compile(text)
        assert len(str(refused.value).encode()) < 200


class TestLimits:
    def test_a_filter_may_be_as_long_as_a_subscription(self) -> None:
        longest = "a = 1".ljust(EXPRESSION_CHARS_MAX)
        assert sql92.compile(longest).matches({"a": "1"})
        with pytest.raises(IllegalFilter, match="16385 characters; 16384 are allowed"):
            sql92.compile(longest + " ")

    @pytest.mark.parametrize("word", ["OR", "AND"])
    def test_as_many_terms_as_allowed_are_joined_without_depth(self, word: str) -> None:
        most = f" {word} ".join(["a = 1"] * (TERMS_MAX // 2))
        assert sql92.compile(most).matches({"a": "1"})
        assert not sql92.compile(most).matches({"a": "2"})
        with pytest.raises(IllegalFilter, match="more than 1024 names and literals"):
            sql92.compile(f"{most} {word} a")

    def test_members_of_a_list_are_no_terms(self) -> None:
        members = ",".join(f"'{number}'" for number in range(2000))
        assert sql92.compile(f"a IN ({members})").matches({"a": "1999"})

    @pytest.mark.parametrize(
        ("before", "after"),
        [("(", ")"), ("NOT ", ""), ("-", ""), ("+", ""), ("NOT (", ")"), ("(b OR ", ")")],
    )
    def test_nesting_ends_in_a_refusal(self, before: str, after: str) -> None:
        for times in (DEPTH_MAX + 1, EXPRESSION_CHARS_MAX // len(before + after) - 10):
            with pytest.raises(IllegalFilter, match="more than 64 conditions within one another"):
                sql92.compile(before * times + "a = 1" + after * times)

    @pytest.mark.parametrize("link", [" IS NULL", " = a", " <> TRUE", " CONTAINS 'x'"])
    def test_comparing_again_and_again_ends_in_a_refusal(self, link: str) -> None:
        with pytest.raises(IllegalFilter, match="more than 64 conditions within one another"):
            sql92.compile("a" + link * 100)

    def test_the_deepest_filters_allowed_are_answered(self) -> None:
        depth = DEPTH_MAX - 2
        assert sql92.compile("(" * depth + "a = 1" + ")" * depth).matches({"a": "1"})
        assert sql92.compile("NOT " * depth + "(a = 1)").matches({"a": "1"})
        assert sql92.compile("a = 1" + " = TRUE" * depth).matches({"a": "1"})
        assert sql92.compile("(b OR NOT " * 30 + "(a = 1)" + ")" * 30).matches({"a": "1", "b": "x"})

    @pytest.mark.timeout(20)
    @pytest.mark.parametrize(
        "text", ["1" * 30_000 + "x", "0" * 30_000 + "x", "0x" + "1." * 15_000, " " * 30_000 + "x"]
    )
    def test_a_property_as_long_as_a_message_allows_is_read_once(self, text: str) -> None:
        numbers = sql92.compile("a > 1 OR TRUE"), sql92.compile("a > 1.5 OR TRUE")
        for _ in range(50):
            assert not any(compiled.matches({"a": text}) for compiled in numbers)


class TestEncoded:
    @pytest.mark.parametrize(
        ("encoded", "answer"),
        [
            (b"a\x01x\x02", True),
            (b"a\x01x", True),
            (b"", False),
            (b"aa\x01x\x02", False),
            (b"b\x01a\x01x\x02", False),
            (b"a\x01y\x02a\x01x\x02", True),
            (b"a\x01x\x02a\x01y\x02", False),
            (b"a\x01x\x02a\x01\x02", True),
            (b"a\x01x\x02ba\x01y\x02", True),
            (b"a\x01x\xff\x02", False),
            (b"\x02\x01\x02a\x01x", True),
        ],
    )
    def test_properties_are_found_as_rocketmq_decodes_them(
        self, encoded: bytes, answer: bool
    ) -> None:
        compiled = sql92.compile("a = 'x'")
        assert compiled.matches_encoded(encoded) is answer
        assert compiled.matches(decode_properties(encoded)) is answer

    def test_bytes_that_are_no_text_are_one_unknown_character(self) -> None:
        assert sql92.compile("a ENDSWITH 'x\ufffd'").matches_encoded(b"a\x01x\xff\x02")

    def test_many_names_are_all_found(self) -> None:
        names = [f"name{number}" for number in range(100)]
        compiled = sql92.compile(" AND ".join(f"{name} = '{name}'" for name in names))
        properties = {name: name for name in names}
        assert compiled.matches_encoded(encode_properties(properties))
        assert not compiled.matches_encoded(encode_properties(properties | {"name99": "other"}))


OPERATORS = ["=", "<>", ">", ">=", "<", "<=", "AND", "OR", "NOT", "IS", "IN", "BETWEEN", "CONTAINS"]
OPERANDS = ["a", "b", "TAGS", "NULL", "TRUE", "1", "-5", "2147483648", "1.5", "0.0", "'x'", "'5'"]
OTHERS = ["(", ")", ",", "+", "-", "('x','y')", "''", "'", "--", "/*", "*/", "@", "标", "(a=1)"]
WORDS = st.sampled_from([*OPERATORS, *OPERANDS, *OTHERS])
NUMBERS = ["1", "5", "-5", "+5", "5.0", "NaN", "1e400", "0x1p3", "3000000000", "٥"]
VALUES = st.sampled_from([*NUMBERS, "x", "true"]) | st.text(
    st.characters(exclude_characters="\x01\x02", exclude_categories=["Cs"]), min_size=1
)
PROPERTIES = st.dictionaries(st.sampled_from(["a", "b", "TAGS", "other"]), VALUES)


def answers_or_is_refused(text: str, properties: dict[str, str]) -> None:
    try:
        compiled = sql92.compile(text)
    except IllegalFilter:
        return
    plain = compiled.matches(properties)
    assert compiled.matches_encoded(encode_properties(properties)) is plain
    assert text.endswith(compiled.unread)


@given(st.text(), PROPERTIES)
@settings(max_examples=150, deadline=None)
def test_any_text_is_a_filter_or_refused(text: str, properties: dict[str, str]) -> None:
    answers_or_is_refused(text, properties)


@given(st.lists(WORDS, max_size=16), st.sampled_from(["", " "]), PROPERTIES)
@settings(max_examples=300, deadline=None)
def test_any_row_of_words_is_a_filter_or_refused(
    words: list[str], between: str, properties: dict[str, str]
) -> None:
    answers_or_is_refused(between.join(words), properties)


@given(
    st.lists(
        st.sampled_from(["(", "NOT ", "-", "a OR (", "a = (", "NOT a AND (b = "]), max_size=80
    ),
    st.integers(0, 90),
    PROPERTIES,
)
@settings(max_examples=100, deadline=None)
def test_any_nesting_is_a_filter_or_refused(
    opened: list[str], closed: int, properties: dict[str, str]
) -> None:
    answers_or_is_refused("".join(opened) + "a = 1" + ")" * closed, properties)


CONDITIONS = st.recursive(
    st.builds(
        "{} {} {}".format,
        st.sampled_from(["a", "b"]),
        st.sampled_from(["=", "<>", ">", "<=", "IS NULL OR 1 ="]),
        st.sampled_from(["1", "-5", "1.5", "b"]),
    )
    | st.sampled_from(["a IN ('x', '5')", "b NOT CONTAINS 'x'", "a BETWEEN 1 AND 5", "NULL"]),
    lambda inner: (
        st.builds("({}) AND ({})".format, inner, inner)
        | st.builds("({}) OR ({})".format, inner, inner)
        | st.builds("NOT ({})".format, inner)
    ),
    max_leaves=8,
)


@given(CONDITIONS, CONDITIONS, PROPERTIES)
@settings(max_examples=150, deadline=None)
def test_conditions_are_joined_by_the_tables_of_three_values(
    left: str, right: str, properties: dict[str, str]
) -> None:
    first, second = answer_of(left, properties), answer_of(right, properties)
    both = answer_of(f"({left}) AND ({right})", properties)
    either = answer_of(f"({left}) OR ({right})", properties)
    rank = [FALSE, UNKNOWN, TRUE]
    if FAILS not in (first, second):
        assert both == min(first, second, key=rank.index)
        assert either == max(first, second, key=rank.index)
    elif first == FAILS:
        assert both == either == FAILS
    else:
        assert both == (FALSE if first == FALSE else FAILS)
        assert either == (TRUE if first == TRUE else FAILS)
