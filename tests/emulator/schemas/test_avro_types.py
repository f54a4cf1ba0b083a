"""Avro schemas are parsed, and invalid schemas are refused."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pullstream_emulator.schemas.avro import AvroDefinition
from pullstream_emulator.schemas.definition import BadDefinition
from tests.emulator.schemas.avro_examples import CHAIN, STATE, definition, takes


@pytest.mark.parametrize(
    "schema",
    [
        "string",
        ["null", "string"],
        STATE,
        CHAIN,
        {"type": "array", "items": {"type": "map", "values": "double"}},
        {"type": "long", "logicalType": "timestamp-millis"},
        {"type": {"type": "array", "items": "int"}},
        {"type": "enum", "name": "E", "symbols": ["A", "B"], "default": "A"},
        {"type": "record", "name": "Empty", "fields": []},
    ],
    ids=repr,
)
def test_valid_avro_schemas_are_accepted(schema: Any) -> None:
    """Valid are all types, and a record that contains itself."""
    definition(schema)


def test_names_in_an_avro_schema_are_resolved_in_the_enclosing_namespace() -> None:
    """A short name refers to the same namespace, a full name to any namespace."""
    address = {"type": "record", "name": "Address", "fields": [{"name": "zip", "type": "string"}]}
    fields = [
        {"name": "home", "type": address},
        {"name": "work", "type": "Address"},
        {"name": "other", "type": "people.Address"},
    ]
    schema = {"type": "record", "name": "people.Person", "fields": fields}
    place = {"zip": "1"}
    assert takes(schema, json.dumps({"home": place, "work": place, "other": place}).encode())


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "not JSON"),
        ("{", "not JSON"),
        ("3", "3 is not a type"),
        ("[]", "must contain a type"),
        ('"nope"', 'type "nope" is unknown'),
        ('{"type": "array"}', "null is not a type"),
        ('["int", "int"]', "must not contain int twice"),
        ('["int", ["null"]]', "must not contain a union"),
        ('{"type": "record", "name": "R"}', "needs a list of fields"),
        ('{"type": "record", "fields": []}', "is not a name"),
        ('{"type": "record", "name": "a b", "fields": []}', "is not a name"),
        ('{"type": "record", "name": "R", "fields": [3]}', "3 is not a field"),
        ('{"type": "record", "name": "R", "fields": [{"type": "int"}]}', "null is not a name"),
        ('{"type": "record", "name": "R", "fields": [{"name": "a"}]}', "null is not a type"),
        ('{"type": "fixed", "name": "F", "size": -1}', "needs a size"),
        ('{"type": "fixed", "name": "F", "size": true}', "needs a size"),
        ('{"type": "enum", "name": "E", "symbols": []}', "needs symbols"),
        ('{"type": "enum", "name": "E", "symbols": ["A", "A"]}', "needs symbols"),
        ('{"type": "enum", "name": "E", "symbols": "AB"}', "must be a list of strings"),
        ('{"type": "enum", "name": "E", "symbols": ["A"], "default": "B"}', "default of enum"),
        ('{"type": "fixed", "name": "int", "size": 1}', "already defined"),
        ("[" * 100_000, "nests too deeply"),
    ],
)
def test_invalid_avro_schemas_are_refused(text: str, problem: str) -> None:
    """Each error describes the problem."""
    with pytest.raises(BadDefinition, match=problem):
        AvroDefinition(text)


def test_an_avro_schema_with_a_duplicate_name_is_refused() -> None:
    """Neither two records nor two fields of one record may share a name."""
    twice = {"type": "fixed", "name": "F", "size": 1}
    fields = [{"name": "a", "type": twice}, {"name": "b", "type": twice}]
    with pytest.raises(BadDefinition, match="F is already defined"):
        definition({"type": "record", "name": "R", "fields": fields})
    fields = [{"name": "a", "type": "int"}, {"name": "a", "type": "string"}]
    with pytest.raises(BadDefinition, match="two fields a"):
        definition({"type": "record", "name": "R", "fields": fields})


@given(
    text=st.recursive(
        st.none() | st.integers() | st.sampled_from(["record", "enum", "R", "int", "array", "map"]),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(
                st.sampled_from(
                    [
                        "type",
                        "name",
                        "fields",
                        "items",
                        "values",
                        "symbols",
                        "size",
                        "aliases",
                        "namespace",
                    ]
                ),
                inner,
            )
        ),
    ).map(json.dumps)
)
def test_any_json_text_as_avro_schema_is_accepted_or_refused(text: str) -> None:
    """Invalid input gives a clear error and no other exception."""
    try:
        parsed = AvroDefinition(text)
    except BadDefinition:
        return
    parsed.check_follows(parsed)
