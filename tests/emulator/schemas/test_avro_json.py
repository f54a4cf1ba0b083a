"""Messages in Avro's JSON encoding."""

from __future__ import annotations

import json
from typing import Any

import pytest

from pullstream_emulator.schemas.definition import Mismatch
from pullstream_protocol.messages import schema_pb2 as pb
from tests.emulator.schemas.avro_examples import STATE, definition, takes


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        ([], "JSON object with type array does not match schema which expected object"),
        ({"name": "Ohio"}, "Field was not found in JSON object: people"),
        (
            {"name": "Ohio", "people": "many"},
            "JSON object with type string does not match schema which expected number_integer",
        ),
        ({"name": "Ohio", "people": 2**31}, "expected number_integer"),
        ({"name": "Ohio", "people": 1.0}, "type number_float"),
        ({"name": "Ohio", "people": True}, "type boolean"),
        ({"name": None, "people": 1}, "type null"),
        ({"name": "Ohio", "people": 1, "area": 2}, "unknown field: area"),
    ],
)
def test_a_json_message_that_does_not_match_its_avro_schema_is_refused(
    value: Any, problem: str
) -> None:
    """The error has the text of the production service, where that is known."""
    with pytest.raises(Mismatch, match=problem):
        definition(STATE).check(json.dumps(value).encode(), pb.JSON)


@pytest.mark.parametrize("text", [b"", b"{", b"\xff", b'{"name": NaN}', b"[" * 100_000])
def test_a_message_that_is_not_json_is_refused_by_an_avro_schema_with_json_encoding(
    text: bytes,
) -> None:
    """The message is refused before it is compared with the schema."""
    assert not takes(STATE, text)


@pytest.mark.parametrize(
    ("value", "fits"),
    [
        (None, True),
        ({"string": "a"}, True),
        ({"geo.State": {"name": "Ohio", "people": 1}}, True),
        ("a", False),
        ({"string": 1}, False),
        ({"null": None}, False),
        ({"int": 1}, False),
        ({"string": "a", "geo.State": {}}, False),
    ],
)
def test_a_union_value_in_an_avro_json_message_must_name_its_branch(value: Any, fits: bool) -> None:
    """Null is the exception, because it has no other meaning."""
    assert takes(["null", "string", STATE], json.dumps(value).encode()) is fits


def test_null_for_an_avro_union_without_null_is_refused_in_a_json_message() -> None:
    """A value of another branch is accepted."""
    assert not takes(["int", "string"], b"null")
    assert takes(["int", "string"], b'{"int": 1}')


@pytest.mark.parametrize(
    ("schema", "value", "fits"),
    [
        ("bytes", "ÿ\0", True),
        ("bytes", "Ā", False),
        ({"type": "fixed", "name": "F", "size": 2}, "ab", True),
        ({"type": "fixed", "name": "F", "size": 2}, "abc", False),
        ({"type": "enum", "name": "E", "symbols": ["A"]}, "A", True),
        ({"type": "enum", "name": "E", "symbols": ["A"]}, "B", False),
        ("double", 3, True),
        ("double", "3", False),
        ("long", 2**63, False),
        ({"type": "map", "values": "int"}, {"a": 1}, True),
        ({"type": "map", "values": "int"}, {"a": None}, False),
        ({"type": "array", "items": "int"}, [1, "2"], False),
    ],
)
def test_values_in_a_json_message_are_accepted_only_in_the_json_form_of_their_avro_type(
    schema: Any, value: Any, fits: bool
) -> None:
    """The JSON forms are those of Avro's specification."""
    assert takes(schema, json.dumps(value).encode()) is fits
