"""Whether a JSON text is a message of an Avro schema, in Avro's own JSON encoding.

A union's value is null, or an object whose one key names the branch. Bytes are a string, one
character for each. Defaults play no part: a field that is not there is missing.
"""

from __future__ import annotations

import json
from typing import Any, NoReturn

from .avro_types import Array, AvroType, Enum, Fixed, Map, Record, Union
from .definition import Mismatch

INT_RANGE = range(-(2**31), 2**31)
LONG_RANGE = range(-(2**63), 2**63)

# What a primitive is written as in JSON, in the words of the real service's refusals.
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
    """Raise Mismatch unless `data` is a message of `schema`."""
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
        if not any(branch.name == "null" for branch in schema.branches):
            raise Mismatch("JSON object with type null does not match any branch of the union.")
        return
    if not isinstance(value, dict) or len(value) != 1:
        raise Mismatch(
            f"JSON object with type {_kind(value)} does not match schema which expected a union: "
            "an object whose one key names the branch."
        )
    ((name, inner),) = value.items()
    for branch in schema.branches:
        if branch.name == name != "null":
            _check(branch, inner)
            return
    raise Mismatch(f"{name!r} is not a branch of the union.")


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
    if any(ord(character) > 0xFF for character in text):
        raise Mismatch("A string that stands for bytes has a character beyond U+00FF.")
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
