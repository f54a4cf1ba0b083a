"""Filters by tag: Eq, Glob, and the report of a filter."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pullstream_emulator.rest.v0 import tag_filter
from pullstream_protocol.filter import compile_filter

TEXT = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=30)


@given(tag=TEXT, other=TEXT)
def test_a_v0_eq_tag_filter_accepts_only_records_with_the_given_tag(tag: str, other: str) -> None:
    """The tag may have any characters."""
    accepts = compile_filter(tag_filter.to_text(["tag", "Eq", tag], "filter"))
    assert accepts({"tag": tag})
    assert accepts({"tag": other}) == (other == tag)
    assert not accepts({"node": tag})


@given(prefix=TEXT.filter(lambda text: "*" not in text), other=TEXT)
def test_a_v0_glob_tag_filter_accepts_records_whose_tag_has_the_given_prefix(
    prefix: str, other: str
) -> None:
    """The filter accepts no record without a tag."""
    accepts = compile_filter(tag_filter.to_text(["tag", "Glob", prefix + "*"], "filter"))
    assert accepts({"tag": prefix + other})
    assert accepts({"tag": other}) == other.startswith(prefix)
    assert not accepts({})


@given(operator=st.sampled_from(["Eq", "Glob"]), text=TEXT.filter(lambda text: "*" not in text))
def test_v0_returns_the_tag_filter_of_a_router_in_the_form_of_the_request(
    operator: str, text: str
) -> None:
    """A client can send the returned filter again."""
    value = ["tag", operator, text + "*" * (operator == "Glob")]
    assert tag_filter.to_json(tag_filter.to_text(value, "filter")) == value


@pytest.mark.parametrize(
    "text",
    [
        'attributes.node = "x"',
        'attributes.tag != "x"',
        'attributes.tag="x"',
        'attributes.tag = "\\x41"',
        'attributes.tag = "x" AND attributes:y OR attributes.tag = "x"',
        'hasPrefix(attributes.tag, "a*")',
    ],
)
def test_v0_returns_router_filters_other_than_tag_filters_as_text(text: str) -> None:
    """Other filters were set over gRPC."""
    assert tag_filter.to_json(text) == text


def test_v0_returns_null_as_tag_filter_of_a_router_without_a_filter() -> None:
    """Requests have the same form."""
    assert tag_filter.to_json("") is None
