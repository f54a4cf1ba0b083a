"""Conversion of messages from and to JSON, by proto3's mapping and with production's errors.

google.protobuf.json_format does the work. It is less strict than production in places, and its
error texts are for protobuf programmers. Input is therefore first checked against the message's
descriptor.
"""

from __future__ import annotations

import base64
import binascii
import json
import math
import re
from functools import cache
from typing import Any

from google.protobuf import json_format
from google.protobuf.descriptor import Descriptor, EnumDescriptor, FieldDescriptor
from google.protobuf.duration_pb2 import Duration
from google.protobuf.field_mask_pb2 import FieldMask
from google.protobuf.message import Message
from google.protobuf.timestamp_pb2 import Timestamp

from pullstream_emulator.error_body import bad_payload, bad_value

# Messages of the API nest less than ten levels deep; a Struct may nest more.
MAX_DEPTH = 100

# Longest part of a bad value that an error quotes, in characters.
_MAX_QUOTED = 100

# Most digits of a number. Every number of the API is shorter, and Python refuses longer integers.
_MAX_DIGITS = 400

# A number in a text.
_NUMBER = re.compile(r"-?[0-9]+(\.[0-9]+)?([eE][+-]?[0-9]{1,3})?")

_KINDS = {
    FieldDescriptor.TYPE_BOOL: "TYPE_BOOL",
    FieldDescriptor.TYPE_STRING: "TYPE_STRING",
    FieldDescriptor.TYPE_BYTES: "TYPE_BYTES",
    FieldDescriptor.TYPE_INT32: "TYPE_INT32",
    FieldDescriptor.TYPE_INT64: "TYPE_INT64",
}
_BITS = {FieldDescriptor.TYPE_INT32: 32, FieldDescriptor.TYPE_INT64: 64}

# The forms of special messages in JSON: their reader, and the words of production's errors.
_SPECIAL: dict[str, tuple[type[Timestamp] | type[Duration] | type[FieldMask], str]] = {
    "google.protobuf.Timestamp": (
        Timestamp,
        "Illegal timestamp format; timestamps must end with 'Z' or have a valid timezone offset.",
    ),
    "google.protobuf.Duration": (
        Duration,
        "Illegal duration format; duration must end with 's'.",
    ),
    "google.protobuf.FieldMask": (
        FieldMask,
        "Illegal field mask format; a mask is a string of paths with commas between them.",
    ),
}


def loads(body: bytes) -> Any:
    """Parse a request's body; an empty body is an empty object.

    Raises:
        InvalidArgument: The body is not JSON.
    """
    if not body.strip():
        return {}
    try:
        return json.loads(
            body, parse_constant=_refuse_constant, parse_int=_integer, parse_float=_number
        )
    except RecursionError as error:
        raise bad_payload("It is nested too deeply.") from error
    except UnicodeDecodeError as error:
        raise bad_payload("It is not UTF-8.") from error
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


def _integer(text: str) -> int:
    if len(text) > _MAX_DIGITS:
        raise ValueError("Unable to parse number")
    return int(text)


def _number(text: str) -> float:
    number = float(text) if len(text) <= _MAX_DIGITS else math.inf
    if math.isinf(number):
        raise ValueError("Unable to parse number")
    return number


# ---- checks that return the value in json_format's form -----------------------------------------


def _message(value: Any, descriptor: Descriptor, at: str, depth: int) -> Any:
    if descriptor.full_name in _SPECIAL:
        return _special(value, descriptor.full_name, at)
    if descriptor.file.package == "google.protobuf" and descriptor.fields:
        # A Struct may have any content.
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


def _special(value: Any, full_name: str, at: str) -> str:
    """Check a time, a duration or a field mask; return it in JSON's spelling."""
    kind, problem = _SPECIAL[full_name]
    text = value
    if isinstance(value, str) and kind is FieldMask:
        # Like production, accept both spellings of paths.
        text = re.sub(r"_([a-z0-9])", lambda found: found[1].upper(), value)
    try:
        if not isinstance(text, str):
            raise ValueError
        kind().FromJsonString(text)
    except (ValueError, OverflowError) as error:
        field = re.sub(r"_([a-z0-9])", lambda found: found[1].upper(), at.rpartition(".")[2])
        raise bad_value(
            at, f"type.googleapis.com/{full_name}", f"Field '{field}', {problem}"
        ) from error
    return text


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
        return _map(value, field, here, depth)
    if not field.is_repeated:
        return _single(value, field, here, depth)
    if not isinstance(value, list):
        raise bad_value(here, _kind(field), f"{quoted(value)} is not a list")
    return [_single(v, field, f"{here}[{i}]", depth) for i, v in enumerate(value)]


def _is_map(field: FieldDescriptor) -> bool:
    return field.message_type is not None and field.message_type.GetOptions().map_entry


def _map(value: Any, field: FieldDescriptor, at: str, depth: int) -> Any:
    if not isinstance(value, dict):
        raise bad_value(at, "Map", quoted(value))
    entry: Any = field.message_type
    key, item = entry.fields_by_name["key"], entry.fields_by_name["value"]
    return {
        _single(k, key, f"{at}[{i}].key", depth): _single(v, item, f"{at}[{i}].value", depth)
        for i, (k, v) in enumerate(value.items())
    }


def _single(value: Any, field: FieldDescriptor, at: str, depth: int) -> Any:
    if field.message_type is not None:
        return _message(value, field.message_type, at, depth - 1)
    if field.type == FieldDescriptor.TYPE_BYTES:
        return _base64(value, at)
    read: Any = None
    if field.enum_type is not None:
        read = _enum(value, field.enum_type)
    elif field.type in _BITS:
        read = _whole(value, _BITS[field.type])
    elif isinstance(value, bool) and field.type == FieldDescriptor.TYPE_BOOL:
        read = value
    elif isinstance(value, str) and field.type == FieldDescriptor.TYPE_BOOL:
        read = {"true": True, "false": False}.get(value)
    elif isinstance(value, str) and _is_unicode(value):
        read = value
    if read is None:
        raise bad_value(at, _kind(field), quoted(value))
    return read


def _kind(field: FieldDescriptor) -> str:
    """Return the name of a field's type, as production's errors have it."""
    if field.enum_type is not None:
        # Our copies of Google's messages are in packages of their own.
        name = re.sub(r"^pullstream\.", "google.", field.enum_type.full_name)
        return f"type.googleapis.com/{name}"
    if field.message_type is not None:
        return field.message_type.name
    return _KINDS[field.type]


def _enum(value: Any, enum: EnumDescriptor) -> int | None:
    """Return the number of an enum's value from its name or number; None if it is neither."""
    if isinstance(value, str) and _is_unicode(value) and value in enum.values_by_name:
        number: int = enum.values_by_name[value].number
        return number
    return _whole(value, 32)


def _whole(value: Any, bits: int) -> int | None:
    """Return a whole number of at most this size, also from a text or a float, else None."""
    if isinstance(value, str):
        if not _NUMBER.fullmatch(value) or len(value) > _MAX_DIGITS:
            return None
        value = int(value) if value.lstrip("-").isdigit() else float(value)
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int):
        return None
    return value if -(1 << bits - 1) <= value < 1 << bits - 1 else None


def _is_unicode(text: str) -> bool:
    """Return whether a text can be encoded. JSON may contain one half of a surrogate pair."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


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
