"""The language of subscription filters: accepted texts, refused texts, and their meaning."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pullstream_protocol.errors import InvalidArgument
from pullstream_protocol.filter import MAX_DEPTH, compile_filter

# Few keys and values, so that conditions often match attributes.
KEYS = st.sampled_from(["a", "b-1", "_x", "9", "iana.org/lang", 'q"\\\n', "ключ"])
VALUES = st.sampled_from(["", "c", "com", "COM", "a b", 'x"y\\z\t', "é😀"])
ATTRIBUTES = st.dictionaries(KEYS, VALUES)

# A filter expression for tests: its text and its meaning.
Expression = tuple[str, Callable[[Mapping[str, str]], bool]]


def quoted(text: str) -> str:
    """Generate a way to write any text as a string."""
    return (
        '"' + "".join(c if c.isascii() and c.isalnum() else f"\\U{ord(c):08x}" for c in text) + '"'
    )


def key_text(key: str) -> str:
    plain = key.isascii() and key.replace("-", "").replace("_", "").isalnum()
    return key if plain else quoted(key)


CONDITIONS: st.SearchStrategy[Expression] = st.one_of(
    st.builds(lambda k: (f"attributes:{key_text(k)}", lambda a: k in a), KEYS),
    st.builds(
        lambda k, v: (f"attributes.{key_text(k)} = {quoted(v)}", lambda a: a.get(k) == v),
        KEYS,
        VALUES,
    ),
    st.builds(
        lambda k, v: (f"attributes.{key_text(k)}!={quoted(v)}", lambda a: a.get(k) != v),
        KEYS,
        VALUES,
    ),
    st.builds(
        lambda k, v: (
            f"hasPrefix(attributes.{key_text(k)}, {quoted(v)})",
            lambda a: k in a and a[k].startswith(v),
        ),
        KEYS,
        VALUES,
    ),
)


def compound(inner: st.SearchStrategy[Expression]) -> st.SearchStrategy[Expression]:
    def joined(operator: str, parts: list[Expression]) -> Expression:
        decide = all if operator == "AND" else any
        text = f" {operator} ".join(f"({part})" for part, _ in parts)
        return text, lambda a: decide(means(a) for _, means in parts)

    def negated(sign: str, part: Expression) -> Expression:
        return f"{sign}({part[0]})", lambda a: not part[1](a)

    return st.one_of(
        st.builds(joined, st.sampled_from(["AND", "OR"]), st.lists(inner, min_size=2, max_size=3)),
        st.builds(negated, st.sampled_from(["NOT", "NOT ", "-", "- "]), inner),
    )


@given(expression=st.recursive(CONDITIONS, compound, max_leaves=8), attributes=ATTRIBUTES)
def test_a_subscription_filter_evaluates_to_the_combination_of_its_conditions(
    expression: Expression, attributes: dict[str, str]
) -> None:
    """Any combination of conditions evaluates as its parts do."""
    text, means = expression
    assert compile_filter(text)(attributes) is means(attributes)


@given(parts=st.lists(CONDITIONS, min_size=2, max_size=4), attributes=ATTRIBUTES, data=st.data())
def test_the_filter_operator_not_applies_only_to_the_next_condition(
    parts: list[Expression], attributes: dict[str, str], data: st.DataObject
) -> None:
    """Without parentheses a NOT applies to the next condition only."""
    operator = data.draw(st.sampled_from(["AND", "OR"]))
    signs = [data.draw(st.sampled_from(["", "NOT ", "-", "NOT -"])) for _ in parts]
    text = f" {operator} ".join(sign + part[0] for sign, part in zip(signs, parts, strict=True))
    expected = (all if operator == "AND" else any)(
        means(attributes) is (sign in ("", "NOT -"))
        for sign, (_, means) in zip(signs, parts, strict=True)
    )
    assert compile_filter(text)(attributes) is expected


@given(text=st.text())
def test_any_text_as_subscription_filter_is_compiled_or_refused(text: str) -> None:
    """Invalid text gives a clear error and no other exception."""
    try:
        accepts = compile_filter(text)
    except InvalidArgument:
        return
    assert accepts({}) in (True, False)


@given(
    text=st.lists(
        st.sampled_from(
            [
                "attributes",
                ".",
                ":",
                "a",
                '"',
                '"v"',
                "=",
                "!=",
                "(",
                ")",
                "-",
                "NOT",
                "AND",
                "OR",
                "\\",
                "hasPrefix",
                ",",
                " ",
            ]
        )
    ).map("".join)
)
def test_any_sequence_of_words_of_the_filter_language_is_compiled_or_refused(text: str) -> None:
    """The same holds for text that looks almost right."""
    try:
        accepts = compile_filter(text)
    except InvalidArgument:
        return
    assert accepts({}) in (True, False)


@pytest.mark.parametrize("text", ["", " \n"])
def test_an_empty_subscription_filter_accepts_all_messages(text: str) -> None:
    """A subscription without a filter receives all messages."""
    assert compile_filter(text)({})
    assert compile_filter(text)({"a": "b"})


@pytest.mark.parametrize(
    ("literal", "value"),
    [
        (r'"a\"b"', 'a"b'),
        (r'"\\"', "\\"),
        (r'"\x41\102\u0043\U00000044"', "ABCD"),
        (r'"\n\r\t"', "\n\r\t"),
        ('"é😀"', "é😀"),
        ('""', ""),
        ('"AND ("', "AND ("),
    ],
)
def test_strings_in_a_subscription_filter_may_contain_escape_sequences(
    literal: str, value: str
) -> None:
    """Strings have quotes, backslashes, and characters by number: hex, octal, Unicode."""
    accepts = compile_filter(f"attributes.a={literal}")
    assert accepts({"a": value})
    assert not accepts({"a": value + "."})


def test_whitespace_between_the_words_of_a_subscription_filter_is_ignored() -> None:
    """Space is allowed between words, before the first and after the last."""
    accepts = compile_filter(' \thasPrefix ( attributes . a , "v" )\n AND NOT attributes : b ')
    assert accepts({"a": "v"})
    assert not accepts({"a": "v", "b": ""})


def test_attribute_names_and_values_in_a_subscription_filter_are_case_sensitive() -> None:
    """The rule holds for keys, values and prefixes."""
    for text in ('attributes.a="v"', "attributes:a", 'hasPrefix(attributes.a,"v")'):
        assert compile_filter(text)({"a": "v"})
        assert not compile_filter(text)({"A": "v"})
    assert not compile_filter('attributes.a="v"')({"a": "V"})
    assert not compile_filter('hasPrefix(attributes.a, "v")')({"a": "Vx"})


@pytest.mark.parametrize(
    "text",
    [
        "attributes",
        "attributes.a",
        "attributes:",
        "attributes:a.b",
        "attributes.a = b",
        "attributes.a = 'b'",
        'attributes.a > "b"',
        'attributes.a == "b"',
        'attributes.a = "b',
        'data = "b"',
        'Attributes.a = "b"',
        'hasSuffix(attributes.a, "b")',
        'hasprefix(attributes.a, "b")',
        "hasPrefix(attributes.a)",
        'hasPrefix("a", "b")',
        "attributes:a and attributes:b",
        "not attributes:a",
        "attributes:a attributes:b",
        "attributes:a AND",
        "AND attributes:a",
        "attributes:a AND attributes:b OR attributes:c",
        "attributes:a OR attributes:b AND attributes:c",
        "(attributes:a",
        "attributes:a)",
        "()",
        "NOT",
        r'attributes.a = "\q"',
        r'attributes.a = "\ud800"',
        r'attributes.a = "\U00110000"',
    ],
)
def test_a_subscription_filter_with_invalid_syntax_is_refused(text: str) -> None:
    """The error quotes the filter."""
    with pytest.raises(InvalidArgument, match="argument=Invalid filter: ") as refused:
        compile_filter(text)
    assert text in refused.value.message


def test_the_error_for_an_invalid_subscription_filter_names_the_position() -> None:
    """The error has the position, so that the user need not search."""
    with pytest.raises(InvalidArgument, match="expected = or !=, at position 13 of"):
        compile_filter("attributes.a > 1")


@pytest.mark.parametrize(
    ("depth", "passes"), [(MAX_DEPTH, True), (MAX_DEPTH + 1, False), (10_000, False)]
)
def test_a_subscription_filter_with_too_deeply_nested_parentheses_is_refused(
    depth: int, passes: bool
) -> None:
    """A hostile filter is refused before it exhausts the stack."""
    text = "(" * depth + "attributes:a" + ")" * depth
    if passes:
        assert compile_filter(text)({"a": ""})
        return
    with pytest.raises(InvalidArgument, match="too many parentheses"):
        compile_filter(text)


def test_a_subscription_filter_with_thousands_of_negations_is_compiled_and_evaluated() -> None:
    """Negations cancel out while they are parsed."""
    assert compile_filter("-" * 9_999 + "attributes:a")({})
    assert not compile_filter("NOT " * 10_000 + "attributes:a")({})
