"""Avro schemas: valid definitions, valid messages, and compatible revisions."""

from __future__ import annotations

import io
import itertools
import json
from collections.abc import Iterator
from typing import Any

import fastavro
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pullstream_emulator.offload import Budget
from pullstream_emulator.schemas.avro import AvroDefinition
from pullstream_emulator.schemas.definition import BadDefinition, Incompatible, Mismatch
from pullstream_protocol.messages import schema_pb2 as pb

STATE = {
    "type": "record",
    "name": "State",
    "namespace": "geo",
    "fields": [
        {"name": "name", "type": "string"},
        {"name": "people", "type": "int"},
    ],
}
# Each record contains another one or none.
CHAIN = {
    "type": "record",
    "name": "Link",
    "fields": [{"name": "next", "type": ["null", "Link"]}],
}

PRIMITIVES: dict[str, st.SearchStrategy[Any]] = {
    "null": st.none(),
    "boolean": st.booleans(),
    "int": st.integers(-(2**31), 2**31 - 1),
    "long": st.integers(-(2**63), 2**63 - 1),
    "float": st.floats(width=32, allow_nan=False, allow_infinity=False),
    "double": st.floats(allow_nan=False, allow_infinity=False),
    "bytes": st.binary(max_size=5),
    "string": st.text(max_size=5),
}


@st.composite
def schemas(draw: st.DrawFn, names: Iterator[int], depth: int = 3) -> Any:
    """Generate a schema without unions and its values. fastavro's form of unions is ambiguous."""
    compound = ["array", "map", "record", "enum", "fixed"] if depth else ["enum", "fixed"]
    kind = draw(st.sampled_from([*PRIMITIVES, *compound]))
    if kind in PRIMITIVES:
        return draw(st.sampled_from([kind, {"type": kind}])), PRIMITIVES[kind]
    name = f"{draw(st.sampled_from(['', 'a.', 'b.c.']))}N{next(names)}"
    if kind == "enum":
        symbols = ["RED", "GREEN", "BLUE"]
        return {"type": "enum", "name": name, "symbols": symbols}, st.sampled_from(symbols)
    if kind == "fixed":
        size = draw(st.integers(0, 4))
        schema = {"type": "fixed", "name": name, "size": size}
        return schema, st.binary(min_size=size, max_size=size)
    if kind == "record":
        parts = [draw(schemas(names, depth - 1)) for _ in range(draw(st.integers(0, 3)))]
        fields = [{"name": f"f{i}", "type": schema} for i, (schema, _) in enumerate(parts)]
        members = {f"f{i}": inner for i, (_, inner) in enumerate(parts)}
        record = {"type": "record", "name": name, "fields": fields}
        return record, st.fixed_dictionaries(members)
    inner, values = draw(schemas(names, depth - 1))
    if kind == "array":
        return {"type": "array", "items": inner}, st.lists(values, max_size=3)
    return {"type": "map", "values": inner}, st.dictionaries(st.text(max_size=3), values)


@st.composite
def messages(draw: st.DrawFn) -> tuple[Any, Any]:
    schema, values = draw(schemas(itertools.count()))
    return schema, draw(values)


def definition(schema: Any) -> AvroDefinition:
    return AvroDefinition(json.dumps(schema))


def in_binary(schema: Any, value: Any) -> bytes:
    written = io.BytesIO()
    fastavro.schemaless_writer(written, fastavro.parse_schema(schema), value)
    return written.getvalue()


def in_json(value: Any) -> bytes:
    """Return the JSON of a value. Without unions it is plain JSON, with one character per byte."""

    def plain(part: Any) -> Any:
        if isinstance(part, bytes):
            return part.decode("latin-1")
        if isinstance(part, list):
            return [plain(item) for item in part]
        return {key: plain(item) for key, item in part.items()} if isinstance(part, dict) else part

    return json.dumps(plain(value)).encode()


def takes(schema: Any, data: bytes, encoding: pb.Encoding = pb.JSON) -> bool:
    try:
        definition(schema).check(data, encoding, Budget())
    except Mismatch:
        return False
    return True


def linked(depth: int) -> bytes:
    """Return a CHAIN with this many links, in binary."""
    return b"\x02" * depth + b"\x00"


# ---- definitions -------------------------------------------------------------------------------


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
def test_what_is_a_schema(schema: Any) -> None:
    """Valid are all types, and a record that contains itself."""
    definition(schema)


def test_names_are_looked_up_in_their_namespace() -> None:
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
def test_what_is_no_schema(text: str, problem: str) -> None:
    """Each error describes the problem."""
    with pytest.raises(BadDefinition, match=problem):
        AvroDefinition(text)


def test_a_name_stands_for_one_type() -> None:
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
def test_any_json_is_read_or_refused(text: str) -> None:
    """Invalid input gives a clear error and no other exception."""
    try:
        parsed = AvroDefinition(text)
    except BadDefinition:
        return
    parsed.check_follows(parsed)


# ---- messages ----------------------------------------------------------------------------------


@given(message=messages())
def test_what_avro_writes_is_taken(message: tuple[Any, Any]) -> None:
    """This holds for both encodings. Another library writes the binary one."""
    schema, value = message
    definition(schema).check(in_binary(schema, value), pb.BINARY, Budget())
    definition(schema).check(in_json(value), pb.JSON, Budget())


@given(message=messages(), data=st.data())
def test_a_message_ends_where_it_ends(message: tuple[Any, Any], data: st.DataObject) -> None:
    """One byte more or less is refused."""
    schema, value = message
    binary = in_binary(schema, value)
    with pytest.raises(Mismatch, match="Too much data to parse for schema"):
        definition(schema).check(binary + b"\0", pb.BINARY, Budget())
    if binary:
        cut = data.draw(st.integers(0, len(binary) - 1))
        assert not takes(schema, binary[:cut], pb.BINARY)


@given(schema=schemas(itertools.count()), data=st.binary(), encoding=st.sampled_from([1, 2]))
def test_any_bytes_are_taken_or_refused(schema: Any, data: bytes, encoding: pb.Encoding) -> None:
    """Invalid bytes are refused without another exception."""
    assert takes(schema[0], data, encoding) in (True, False)


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
def test_json_that_is_not_of_the_schema(value: Any, problem: str) -> None:
    """The error has the text of the production service, where that is known."""
    with pytest.raises(Mismatch, match=problem):
        definition(STATE).check(json.dumps(value).encode(), pb.JSON, Budget())


@pytest.mark.parametrize("text", [b"", b"{", b"\xff", b'{"name": NaN}', b"[" * 100_000])
def test_what_is_not_json(text: bytes) -> None:
    """It is refused before it is compared with the schema."""
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
def test_a_union_names_its_branch(value: Any, fits: bool) -> None:
    """Null is the exception, because it has no other meaning."""
    assert takes(["null", "string", STATE], json.dumps(value).encode()) is fits


def test_a_union_without_null() -> None:
    """Then null is not a valid value."""
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
def test_json_of_the_other_types(schema: Any, value: Any, fits: bool) -> None:
    """The JSON forms are those of Avro's specification."""
    assert takes(schema, json.dumps(value).encode()) is fits


@pytest.mark.parametrize(
    ("schema", "data"),
    [
        ("boolean", b"\x02"),
        ("int", b"\x80\x80\x80\x80\x20"),
        ("long", b"\xff" * 10 + b"\x01"),
        ("string", b"\x01"),
        ("string", b"\x02\xff"),
        (["null", "int"], b"\x04"),
        (["null", "int"], b"\x01"),
        ({"type": "enum", "name": "E", "symbols": ["A"]}, b"\x02"),
        # A block of one int with a declared size of two bytes.
        ({"type": "array", "items": "int"}, b"\x01\x04\x02\x00"),
    ],
)
def test_binary_that_is_not_of_the_schema(schema: Any, data: bytes) -> None:
    """No Avro library would write these bytes."""
    assert not takes(schema, data, pb.BINARY)


@pytest.mark.parametrize("value", [0, -1, 63, 64, -65, 2**31, 2**63 - 1, -(2**63)])
def test_numbers_where_they_grow_longer(value: int) -> None:
    """A byte has seven bits of a number, and a bit that says whether another byte follows."""
    assert takes("long", in_binary("long", value), pb.BINARY)


@pytest.mark.parametrize(("name", "bits"), [("int", 32), ("long", 64)])
def test_the_largest_numbers(name: str, bits: int) -> None:
    """Both encodings have the same limits."""
    low, high = -(2 ** (bits - 1)), 2 ** (bits - 1) - 1
    for value, fits in ((low - 1, False), (low, True), (high, True), (high + 1, False)):
        assert takes(name, json.dumps(value).encode()) is fits
    assert takes("int", in_binary("long", low), pb.BINARY) is (bits == 32)
    assert takes("int", in_binary("long", high), pb.BINARY) is (bits == 32)
    assert takes(name, in_binary("long", low), pb.BINARY)
    assert not takes("int", in_binary("long", 2**31), pb.BINARY)
    assert not takes("int", in_binary("long", -(2**31) - 1), pb.BINARY)


def test_a_block_may_tell_its_size() -> None:
    """Its count is negative then."""
    assert takes({"type": "array", "items": "int"}, b"\x03\x04\x02\x02\x00", pb.BINARY)


def test_a_huge_count_of_nothing_costs_nothing() -> None:
    """Items without bytes are not counted one by one."""
    assert takes({"type": "array", "items": "null"}, b"\xfe" + b"\xff" * 8 + b"\x01\x00", pb.BINARY)


@pytest.mark.parametrize(("depth", "fits"), [(0, True), (50, True), (1_000_000, False)])
def test_a_message_that_nests_without_end(depth: int, fits: bool) -> None:
    """It is refused. A parser written in C would end the process."""
    assert takes(CHAIN, linked(depth), pb.BINARY) is fits


# ---- the next revision -------------------------------------------------------------------------


def record(*fields: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"type": "record", "name": "R", "fields": list(fields), **more}


A = {"name": "a", "type": "string"}
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
def test_what_may_follow(older: Any, newer: Any) -> None:
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
def test_what_must_not_follow(older: Any, newer: Any, problem: str) -> None:
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
def test_no_kind_is_another(older: Any, newer: Any) -> None:
    """The names do not matter."""
    with pytest.raises(Incompatible, match="cannot be read as"):
        definition(newer).check_follows(definition(older))


def test_many_ways_to_the_same_refusal() -> None:
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


def test_an_alias_finds_a_renamed_field_one_way_only() -> None:
    """A reader with only the old name cannot read the new one."""
    renamed = {"name": "b", "aliases": ["a"], "type": "string"}
    with pytest.raises(Incompatible, match="field a of R is missing"):
        definition(record(renamed)).check_follows(definition(record(A)))
    both_ways = {"name": "a", "aliases": ["b"], "type": "string"}
    definition(record(renamed)).check_follows(definition(record(both_ways)))


def test_a_failed_branch_of_a_union_leaves_nothing_behind() -> None:
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
def test_a_schema_may_follow_itself(message: tuple[Any, Any]) -> None:
    """A rollback does this."""
    schema, _ = message
    definition(schema).check_follows(definition(schema))
