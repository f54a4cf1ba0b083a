"""Check of messages against an Avro schema, in Avro's JSON encoding.

A union's value is null, or an object whose only key names the branch. Bytes are encoded as a
string, with one character for each byte. Defaults are ignored: every field must be present.
"""

from __future__ import annotations

import json
from typing import Any, NoReturn

from .avro_types import Array, AvroType, Enum, Fixed, Map, Record, Union
from .definition import Mismatch

INT_RANGE = range(-(2**31), 2**31)
LONG_RANGE = range(-(2**63), 2**63)

# The JSON type of each primitive, named as in the real service's error texts.
_WRITTEN_AS = {
    "null": "null",
    "boolean": "boolean",
    "int": "number_integer",
    "long": "number_integer",
    "float": "number_float",
    "double": "number_float",
    "bytes": "string",
    "string": "string",
}


def check_json(schema: AvroType, data: bytes) -> None:
    """Check that `data` is a message of a schema.

    Args:
        schema: The schema.
        data: The encoded message.

    Raises:
        Mismatch: `data` is not a message of the schema.
    """
    try:
        value = json.loads(data.decode(), parse_constant=_refuse_constant)
        _check(schema, value)
    except RecursionError:
        raise Mismatch("The message nests too deeply.") from None
    except Mismatch:
        raise
    except ValueError as error:
        raise Mismatch(f"Message is not valid JSON: {error}") from None


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a JSON value")


def _check(schema: AvroType, value: Any) -> None:
    if isinstance(schema, Union):
        _check_union(schema, value)
    elif isinstance(schema, Record):
        _check_record(schema, value)
    elif isinstance(schema, Array):
        for item in _expect(value, list, "array"):
            _check(schema.items, item)
    elif isinstance(schema, Map):
        for item in _expect(value, dict, "object").values():
            _check(schema.values, item)
    elif isinstance(schema, Enum):
        if _expect(value, str, "string") not in schema.symbols:
            raise Mismatch(f"{value!r} is not a symbol of {schema.name}.")
    elif isinstance(schema, Fixed):
        if len(_octets(value)) != schema.size:
            raise Mismatch(f"{schema.name} must have {schema.size} bytes.")
    else:
        _check_primitive(schema.name, value)


def _check_union(schema: Union, value: Any) -> None:
    if value is None:
        if "null" not in schema.by_name:
            raise Mismatch("JSON object with type null does not match any branch of the union.")
        return
    if not isinstance(value, dict) or len(value) != 1:
        raise Mismatch(
            f"JSON object with type {_kind(value)} does not match schema which expected a union: "
            "an object whose only key names the branch."
        )
    ((name, inner),) = value.items()
    branch = schema.by_name.get(name)
    if branch is None or name == "null":
        raise Mismatch(f"{name!r} is not a branch of the union.")
    _check(branch, inner)


def _check_record(schema: Record, value: Any) -> None:
    members = _expect(value, dict, "object")
    for field in schema.fields:
        if field.name not in members:
            raise Mismatch(f"Field was not found in JSON object: {field.name}.")
        _check(field.type, members[field.name])
    if len(members) > len(schema.fields):
        known = {field.name for field in schema.fields}
        extra = next(name for name in members if name not in known)
        raise Mismatch(f"JSON object with unknown field: {extra}.")


def _check_primitive(name: str, value: Any) -> None:
    if name == "null":
        fits = value is None
    elif name == "boolean":
        fits = isinstance(value, bool)
    elif name == "int":
        fits = type(value) is int and value in INT_RANGE
    elif name == "long":
        fits = type(value) is int and value in LONG_RANGE
    elif name in ("float", "double"):
        fits = type(value) in (int, float)
    elif name == "bytes":
        _octets(value)
        fits = True
    else:
        fits = isinstance(value, str)
    if not fits:
        raise _mismatch(value, _WRITTEN_AS[name])


def _octets(value: Any) -> str:
    text: str = _expect(value, str, "string")
    try:
        text.encode("latin-1")
    except UnicodeEncodeError:
        raise Mismatch("A string that encodes bytes has a character after U+00FF.") from None
    return text


def _expect(value: Any, kind: type, expected: str) -> Any:
    if not isinstance(value, kind):
        raise _mismatch(value, expected)
    return value


def _mismatch(value: Any, expected: str) -> Mismatch:
    return Mismatch(
        f"JSON object with type {_kind(value)} does not match schema which expected {expected}"
    )


def _kind(value: Any) -> str:
    if value is None:
        return "null"
    kinds = {
        bool: "boolean",
        int: "number_integer",
        float: "number_float",
        str: "string",
        list: "array",
    }
    return kinds.get(type(value), "object")
