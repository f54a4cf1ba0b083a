"""Conversion of messages from and to JSON, by proto3's mapping and with production's errors.

google.protobuf.json_format does the work. It is less strict than production in places, and its
error texts are for protobuf programmers. Input is therefore first checked against the message's
descriptor.
"""

from __future__ import annotations

import base64
import binascii
import json
import re
from functools import cache
from typing import Any

from google.protobuf import json_format
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import Message

from pullstream_emulator.error_body import bad_payload, bad_value

# Messages of the API nest less than ten levels deep; a Struct may nest more.
MAX_DEPTH = 100

# Longest part of a bad value that an error quotes, in characters.
_MAX_QUOTED = 100

_SCALARS = {
    FieldDescriptor.TYPE_BOOL: "TYPE_BOOL",
    FieldDescriptor.TYPE_STRING: "TYPE_STRING",
    FieldDescriptor.TYPE_BYTES: "TYPE_BYTES",
    FieldDescriptor.TYPE_INT32: "TYPE_INT32",
    FieldDescriptor.TYPE_INT64: "TYPE_INT64",
}


def loads(body: bytes) -> Any:
    """Parse a request's body; an empty body is an empty object.

    Raises:
        InvalidArgument: The body is not JSON.
    """
    if not body.strip():
        return {}
    try:
        return json.loads(body, parse_constant=_refuse_constant)
    except RecursionError as error:
        raise bad_payload("It is nested too deeply.") from error
    except ValueError as error:
        raise bad_payload(f"{error}.") from error


def merge(message: Message, value: Any, at: str = "") -> None:
    """Set the fields of `message` that a JSON value has.

    Args:
        message: The message to change.
        value: The JSON value.
        at: Place of the value in the request, for errors.

    Raises:
        InvalidArgument: The value has a field that the message does not have, or a value of the
            wrong kind.
    """
    descriptor: Any = message.DESCRIPTOR
    checked = _message(value, descriptor, at, MAX_DEPTH)
    try:
        json_format.ParseDict(checked, message, max_recursion_depth=MAX_DEPTH)
    except (json_format.ParseError, RecursionError) as error:
        # The error text contains message names with this project's package name. Remove it.
        first_line = str(error).partition("\n")[0]
        problem = re.sub(r"[a-z0-9_.]+\.([A-Z])", r"\1", first_line)
        raise bad_payload(problem[: 2 * _MAX_QUOTED]) from error


def dumps(message: Message, *, pretty: bool = True, enum_numbers: bool = False) -> str:
    """Return the JSON text of `message`."""
    return json_format.MessageToJson(
        message,
        indent=2 if pretty else None,
        use_integers_for_enums=enum_numbers,
        ensure_ascii=False,
    )


def quoted(value: Any) -> str:
    """Return a value as an error quotes it, shortened if it is long."""
    return shortened(json.dumps(value))


def shortened(text: str) -> str:
    """Return a text for an error message, cut off if it is long."""
    return text if len(text) <= _MAX_QUOTED else text[:_MAX_QUOTED] + "..."


def field_of(descriptor: Descriptor, name: str) -> FieldDescriptor | None:
    """Return the field with this name, in JSON's or in the definition's spelling."""
    return _fields(descriptor).get(name)


@cache
def _fields(descriptor: Descriptor) -> dict[str, FieldDescriptor]:
    return {name: f for f in descriptor.fields for name in (f.name, f.json_name)}


def _refuse_constant(name: str) -> None:
    raise ValueError(f"Unexpected token {name}")


# ---- checks that return the value in json_format's form -----------------------------------------


def _message(value: Any, descriptor: Descriptor, at: str, depth: int) -> Any:
    if descriptor.full_name == "google.protobuf.FieldMask":
        return _field_mask(value)
    if descriptor.file.package == "google.protobuf" and descriptor.fields:
        # Durations, timestamps and similar types have special JSON forms.
        return value
    if not isinstance(value, dict):
        if not at:
            raise bad_payload("Root element must be a message.")
        raise bad_value(at, descriptor.name, quoted(value))
    if not depth:
        raise bad_payload("It is nested too deeply.")
    return {
        name: _field(item, _known(name, descriptor, at), at, depth) for name, item in value.items()
    }


def _known(name: str, descriptor: Descriptor, at: str) -> FieldDescriptor:
    field = field_of(descriptor, name)
    if field is None:
        where = f" at '{at}'" if at else ""
        raise bad_payload(f"Unknown name {quoted(name)}{where}: Cannot find field.")
    return field


def _field(value: Any, field: FieldDescriptor, at: str, depth: int) -> Any:
    here = f"{at}.{field.name}" if at else field.name
    if value is None:
        return None
    if _is_map(field):
        return value
    if field.is_repeated and isinstance(value, list):
        return [_single(v, field, f"{here}[{i}]", depth) for i, v in enumerate(value)]
    return _single(value, field, here, depth)


def _is_map(field: FieldDescriptor) -> bool:
    return field.message_type is not None and field.message_type.GetOptions().map_entry


def _single(value: Any, field: FieldDescriptor, at: str, depth: int) -> Any:
    if field.message_type is not None:
        return _message(value, field.message_type, at, depth - 1)
    if field.type == FieldDescriptor.TYPE_BYTES:
        return _base64(value, at)
    if field.enum_type is None and isinstance(value, (dict, list)):
        raise bad_value(at, _SCALARS.get(field.type, "TYPE"), quoted(value))
    return value


def _base64(value: Any, at: str) -> str:
    """Check standard or URL-safe base64, with or without padding; return it with padding."""
    if not isinstance(value, str):
        raise bad_value(at, "TYPE_BYTES", quoted(value))
    text = value.rstrip("=").replace("-", "+").replace("_", "/")
    padded = text + "=" * (-len(text) % 4)
    try:
        base64.b64decode(padded, validate=True)
    except (binascii.Error, ValueError) as error:
        problem = f"Base64 decoding failed for {quoted(value)}"
        raise bad_value(at, "TYPE_BYTES", problem) from error
    return padded


def _field_mask(value: Any) -> Any:
    """Convert a mask to JSON's spelling; like production, accept both spellings."""
    if not isinstance(value, str):
        return value
    return re.sub(r"_([a-z0-9])", lambda found: found[1].upper(), value)
