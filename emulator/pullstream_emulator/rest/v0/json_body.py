"""Reading of JSON bodies by msgspec: each kind of object is a struct that names its fields."""

from __future__ import annotations

import re
from itertools import accumulate
from typing import Annotated, TypeVar

import msgspec
from msgspec import Meta, Raw

from pullstream_protocol.errors import InvalidArgument

MAX_INT32 = 2**31 - 1
MAX_INT64 = 2**63 - 1

# Deepest nesting of a record's data. Parsers of other clients fail on data nested much deeper.
MAX_DEPTH = 500

WholeNumber = Annotated[int, Meta(ge=0, le=MAX_INT64)]

# msgspec refuses one half of a surrogate pair, which JSON allows and data keep. It accepts this
# byte in a string, though UTF-8 does not have it: the byte replaces the backslash of a half.
_HIDDEN = b"\xff"

# The backslash of a half, in a text without escaped backslashes.
_HALF = re.compile(
    rb"\\(?=u[dD][89abAB][0-9a-fA-F]{2}(?!\\u[dD][c-fC-F][0-9a-fA-F]{2}))"
    rb"|(?<!\\u[dD][89abAB][0-9a-fA-F]{2})\\(?=u[dD][c-fC-F][0-9a-fA-F]{2})"
)

_STRING = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"')

# Brackets as steps of depth, and the other bytes.
_STEPS = bytes.maketrans(b"[{]}", b"\x01\x01\xff\xff")
_OTHERS = bytes(set(range(256)) - set(b"[{]}"))


class Body(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """The fields of a JSON object. Null means absent, except for data."""


T = TypeVar("T", bound=Body)


def parse(text: bytes) -> Raw:
    """Return a text after checking that it is one JSON value; read it by `read` or `compact`.

    Raises:
        ValueError: It is not JSON in UTF-8.
        RecursionError: It is nested too deeply for the parser.
    """
    text.decode()
    try:
        return msgspec.json.decode(text, type=Raw)
    except msgspec.DecodeError:
        # The two bytes that stand for an escaped backslash are not in UTF-8 either.
        halves_hidden = _HALF.sub(_HIDDEN, text.replace(rb"\\", b"\xfe\xfe"))
        return msgspec.json.decode(halves_hidden.replace(b"\xfe\xfe", rb"\\"), type=Raw)


def is_json(text: bytes) -> bool:
    """Return whether a text is one JSON value that is not nested too deeply for the parser."""
    try:
        parse(text)
    except (ValueError, RecursionError):
        return False
    return True


def read_body(text: bytes, kind: type[T], element: type[Body] | None = None) -> T:
    """Read a request's body; an empty body is an empty object.

    Args:
        text: The body.
        kind: The allowed fields.
        element: The kind of the objects in its array, for errors.

    Raises:
        InvalidArgument: The body is not JSON, or `read` refuses it.
    """
    try:
        value = parse(text.strip() or b"{}")
    except ValueError as error:
        raise InvalidArgument(f"The body is not JSON: {error}.") from error
    except RecursionError as error:
        raise InvalidArgument("The body is not JSON, or nested too deeply.") from error
    return read(value, kind, element=element)


def read(value: Raw, kind: type[T], at: str = "", element: type[Body] | None = None) -> T:
    """Read an object of a body.

    Args:
        value: The object's text, which has been parsed.
        kind: The allowed fields.
        at: Place of the object in the body, for errors: `topics[orders]`; empty for the body.
        element: The kind of the objects in its array, for errors.

    Raises:
        InvalidArgument: The value is not an object, or a field is unknown, missing, of the wrong
            type or out of range.
    """
    try:
        return msgspec.json.decode(value, type=kind)
    except msgspec.ValidationError as error:
        problem, _, path = str(error).partition(" - at `$")
        if "unknown field" in problem:
            fields = (element if element and path else kind).__struct_fields__
            problem += f"; the fields are {', '.join(fields) or 'none'}"
        field = f"{at}{path.rstrip('`')}".lstrip(".") or "The body"
        raise InvalidArgument(f"{field}: {problem}.") from error
    except UnicodeDecodeError as error:
        raise InvalidArgument(f"{at or 'The body'}: Expected text in Unicode.") from error


def compact(value: Raw, at: str) -> bytes:
    """Return a value's text as it was written, but without whitespace between its parts.

    Raises:
        InvalidArgument: The value is nested deeper than MAX_DEPTH.
    """
    text = bytes(value)
    if text.count(b"[") + text.count(b"{") > MAX_DEPTH:
        steps = _STRING.sub(b"", text).translate(_STEPS, _OTHERS)
        if max(accumulate(memoryview(steps).cast("b")), default=0) > MAX_DEPTH:
            raise InvalidArgument(f"{at} must not be nested deeper than {MAX_DEPTH}.")
    return msgspec.json.format(text, indent=-1).replace(_HIDDEN, b"\\")
