"""Avro schemas and messages for tests, written with fastavro."""

from __future__ import annotations

import io
import itertools
import json
from collections.abc import Iterator
from typing import Any

import fastavro
from hypothesis import strategies as st

from pullstream_emulator.schemas.avro import AvroDefinition
from pullstream_emulator.schemas.definition import Mismatch
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
A = {"name": "a", "type": "string"}
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
        definition(schema).check(data, encoding)
    except Mismatch:
        return False
    return True


def linked(depth: int) -> bytes:
    """Return a CHAIN with this many links, in binary."""
    return b"\x02" * depth + b"\x00"


def record(*fields: dict[str, Any], **more: Any) -> dict[str, Any]:
    """Return a schema of records."""
    return {"type": "record", "name": "R", "fields": list(fields), **more}
