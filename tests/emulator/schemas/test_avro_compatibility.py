"""Revisions of an Avro schema: both schemas can read all messages."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from hypothesis import given

from pullstream_emulator.schemas.definition import Incompatible
from tests.emulator.schemas.avro_examples import CHAIN, A, definition, messages, record

OPTIONAL = {"name": "o", "type": "int", "default": 0}


@pytest.mark.parametrize(
    ("older", "newer"),
    [
        (record(A), record(A)),
        (record(A), record(A, OPTIONAL)),
        (record(A, OPTIONAL), record(A)),
        (record(A, OPTIONAL), record(OPTIONAL, A)),
        (record(A), record(A, namespace="other")),
        (record(A), record({"name": "a", "type": "bytes"})),
        (CHAIN, {**CHAIN, "doc": "the same"}),
        (["int", "string"], ["string", "int"]),
    ],
    ids=repr,
)
def test_compatible_revisions_of_an_avro_schema_are_accepted(older: Any, newer: Any) -> None:
    """Each of the two schemas can read messages of the other."""
    definition(newer).check_follows(definition(older))


@pytest.mark.parametrize(
    ("older", "newer", "problem"),
    [
        (record(A), record(A, {"name": "b", "type": "int"}), "field b of R is missing"),
        (record(A, {"name": "b", "type": "int"}), record(A), "field b of R is missing"),
        (record(A), record({"name": "a", "type": "int"}), "string cannot be read as int"),
        ("int", "long", "long cannot be read as int"),
        ("int", ["null", "int"], "null cannot be read as int"),
        (record(A), {**record(A), "name": "S"}, "cannot be read as S"),
        (record(A), {"type": "map", "values": "string"}, "R cannot be read as map"),
        (
            {"type": "enum", "name": "E", "symbols": ["A"]},
            {"type": "enum", "name": "E", "symbols": ["A", "B"]},
            "E.B is missing in E",
        ),
        (
            {"type": "fixed", "name": "F", "size": 1},
            {"type": "fixed", "name": "F", "size": 2},
            "a different size",
        ),
        ({"type": "array", "items": "int"}, {"type": "array", "items": "string"}, "cannot be read"),
        (["null", "int"], ["null", "string"], "int is not in the union"),
        (
            {"type": "enum", "name": "E", "symbols": ["A"]},
            {"type": "enum", "name": "F", "symbols": ["A"]},
            "E cannot be read as F",
        ),
        (
            {"type": "fixed", "name": "E", "size": 1},
            {"type": "fixed", "name": "F", "size": 1},
            "E cannot be read as F",
        ),
        ({"type": "map", "values": "int"}, {"type": "map", "values": "string"}, "cannot be read"),
    ],
    ids=repr,
)
def test_incompatible_revisions_of_an_avro_schema_are_refused(
    older: Any, newer: Any, problem: str
) -> None:
    """One of the two schemas cannot read messages of the other."""
    with pytest.raises(Incompatible, match=problem):
        definition(newer).check_follows(definition(older))


KINDS: list[Any] = [
    "int",
    {"type": "array", "items": "int"},
    {"type": "map", "values": "int"},
    {"type": "fixed", "name": "N", "size": 1},
    {"type": "enum", "name": "N", "symbols": ["A"]},
    {"type": "record", "name": "N", "fields": []},
]


@pytest.mark.parametrize(("older", "newer"), list(itertools.permutations(KINDS, 2)), ids=repr)
def test_an_avro_schema_revision_of_another_avro_type_is_refused(older: Any, newer: Any) -> None:
    """The names do not matter."""
    with pytest.raises(Incompatible, match="cannot be read as"):
        definition(newer).check_follows(definition(older))


def test_the_avro_compatibility_check_compares_each_pair_of_records_once() -> None:
    """Each pair of records is compared once, however many unions lead to it."""

    def levels(leaf: str) -> Any:
        """Return records that each contain one of two records of the next level."""
        known: set[str] = set()

        def level(name: str, depth: int) -> Any:
            if name in known:
                return name
            known.add(name)
            below = [f"a.L{depth - 1}", f"b.L{depth - 1}"]
            held = [level(other, depth - 1) for other in below] if depth else leaf
            return {"type": "record", "name": name, "fields": [{"name": "f", "type": held}]}

        return level("a.L30", 30)

    with pytest.raises(Incompatible):
        definition(levels("int")).check_follows(definition(levels("string")))
    definition(levels("int")).check_follows(definition(levels("int")))


def test_a_schema_revision_that_renames_an_avro_field_needs_aliases_in_both_revisions() -> None:
    """A reader with only the old name cannot read the new one."""
    renamed = {"name": "b", "aliases": ["a"], "type": "string"}
    with pytest.raises(Incompatible, match="field a of R is missing"):
        definition(record(renamed)).check_follows(definition(record(A)))
    both_ways = {"name": "a", "aliases": ["b"], "type": "string"}
    definition(record(renamed)).check_follows(definition(record(both_ways)))


def test_incompatible_avro_records_are_refused_wherever_a_schema_revision_uses_them() -> None:
    """A pair of incompatible records is refused wherever it occurs again."""
    old = {"type": "record", "name": "x.R", "fields": [{"name": "a", "type": "int"}]}
    new = {"type": "record", "name": "y.R", "fields": [{"name": "a", "type": "string"}]}
    other = {"type": "record", "name": "z.R", "fields": [{"name": "a", "type": "int"}]}

    def pair(first: Any, second: Any) -> dict[str, Any]:
        return {
            "type": "record",
            "name": "Pair",
            "fields": [{"name": "first", "type": first}, {"name": "second", "type": second}],
        }

    with pytest.raises(Incompatible):
        definition(pair([new, other], "y.R")).check_follows(definition(pair(old, "x.R")))


@given(message=messages())
def test_an_avro_schema_is_compatible_with_itself(message: tuple[Any, Any]) -> None:
    """A rollback needs that."""
    schema, _ = message
    definition(schema).check_follows(definition(schema))


def test_comparing_avro_unions_with_too_many_pairs_of_types_is_refused() -> None:
    """Branches of other names are compared with all branches of the other union."""

    def union(namespace: str, count: int) -> Any:
        fields = [[{"name": f"f{number}", "type": "int"}] for number in range(count)]
        return [
            {"type": "record", "name": f"{namespace}{number}.R", "fields": each}
            for number, each in enumerate(fields)
        ]

    older, newer = union("a", 700), union("b", 700)[::-1]
    with pytest.raises(Incompatible, match="too many types to be compared"):
        definition(newer).check_follows(definition(older))
