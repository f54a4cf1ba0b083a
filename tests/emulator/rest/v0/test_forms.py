"""Parsing and writing of /v0 without a network: unchanged JSON, filters, names."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pullstream_emulator.rest.v0 import short_names, tag_filter
from pullstream_emulator.rest.v0.json_text import Json, loads, loads_records, to_array, to_object
from pullstream_protocol.filter import compile_filter

SPACE = st.text(" \t\n\r", max_size=2)
VALUE = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)  # fmt: skip
TEXT = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=30)
NAME = st.text("ab:1/é%& ", min_size=1, max_size=10)


def spaced(draw: Any, value: Any) -> str:
    """Generate a JSON text of a value, with space wherever it is allowed."""

    def space() -> str:
        return str(draw(SPACE))

    if isinstance(value, dict):
        inner = ",".join(
            f"{space()}{json.dumps(name)}{space()}:{spaced(draw, item)}"
            for name, item in value.items()
        )
        return f"{space()}{{{inner}{space()}}}{space()}"
    if isinstance(value, list):
        return f"{space()}[{','.join(spaced(draw, item) for item in value) or space()}]{space()}"
    return space() + json.dumps(value) + space()


@given(st.data())
@settings(max_examples=40)
def test_only_the_data_of_records_stays_text(data: st.DataObject) -> None:
    """Everything else is parsed as JSON, wherever there is space."""
    values = data.draw(st.lists(VALUE, max_size=3))
    content: dict[str, Any] = {
        "node": data.draw(VALUE),
        "records": [{"tag": data.draw(VALUE), "data": value} for value in values],
        "data": {"data": 1},
    }
    text = spaced(data.draw, content)
    assert loads(text.encode()) == content
    read = loads_records(text.encode())
    kept = [record.pop("data") for record in read["records"]]
    assert kept == [json.dumps(value, separators=(",", ":")) for value in values]
    for record in content["records"]:
        del record["data"]
    assert read == content


@given(VALUE)
@settings(max_examples=40)
def test_anything_may_stand_where_records_should(value: Any) -> None:
    """Other code refuses it."""
    read = loads_records(json.dumps({"records": value}).encode())["records"]
    if isinstance(value, list):
        assert [r for r in read if not isinstance(r, dict)] == [
            r for r in value if not isinstance(r, dict)
        ]
    else:
        assert read == value


def test_what_is_written_is_one_line() -> None:
    """Texts are inserted unchanged."""
    content = {"a": 'é"\n', "b": to_array([Json("1.00"), Json("[ ]")]), "c": None}
    assert to_object(content) == '{"a":"é\\"\\n","b":[1.00,[ ]],"c":null}'


# ---- filters -----------------------------------------------------------------------------------


@given(tag=TEXT, other=TEXT)
def test_an_eq_accepts_its_tag_only(tag: str, other: str) -> None:
    """The tag may have any characters."""
    accepts = compile_filter(tag_filter.to_text(["tag", "Eq", tag], "filter"))
    assert accepts({"tag": tag})
    assert accepts({"tag": other}) == (other == tag)
    assert not accepts({"node": tag})


@given(prefix=TEXT.filter(lambda text: "*" not in text), other=TEXT)
def test_a_glob_accepts_what_begins_so(prefix: str, other: str) -> None:
    """It accepts no record without a tag."""
    accepts = compile_filter(tag_filter.to_text(["tag", "Glob", prefix + "*"], "filter"))
    assert accepts({"tag": prefix + other})
    assert accepts({"tag": other}) == other.startswith(prefix)
    assert not accepts({})


@given(operator=st.sampled_from(["Eq", "Glob"]), text=TEXT.filter(lambda text: "*" not in text))
def test_a_filter_is_reported_as_it_was_given(operator: str, text: str) -> None:
    """So a client can send it again."""
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
def test_a_filter_without_a_tuple_is_reported_as_its_text(text: str) -> None:
    """Such a filter was set over gRPC."""
    assert tag_filter.to_json(text) == text


def test_no_filter_is_null() -> None:
    """Requests have the same form."""
    assert tag_filter.to_json("") is None


# ---- names -------------------------------------------------------------------------------------


@given(NAME)
def test_a_name_survives_its_id(name: str) -> None:
    """A name that looks like an encoded one stands for the decoded name."""
    path = short_names.topic_path("p", name)
    assert path.startswith("projects/p/topics/")
    assert path.count("/") == 3
    assert short_names.topic_path("p", short_names.short(path)) == path
    if "%" not in name:
        assert short_names.short(path) == name
