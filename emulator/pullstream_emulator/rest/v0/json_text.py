"""JSON parsing that keeps parts of the text as they were written.

A value that is parsed to Python and written again may change: 1.00 becomes 1.0, 1e400 becomes
infinite, and duplicate members are merged. The broker must not change a record's data, so it keeps
the data as text.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable
from itertools import accumulate
from json import JSONDecodeError
from typing import Any

from pullstream_emulator.logs.append_limits import MAX_DATA_BYTES, MAX_RECORDS
from pullstream_emulator.rest.json_text import Json
from pullstream_protocol.errors import InvalidArgument

# Deepest nesting of a record's data. Python fails on data nested much deeper; the exact limit
# depends on the depth of the call stack.
MAX_DEPTH = 500

# More than any object that is read member by member has.
MAX_MEMBERS = 20

# Reads the value at a position; returns it, and the position after it.
Reader = Callable[[str, int], tuple[Any, int]]

_SPACE = re.compile(r"[ \t\n\r]+")
_COLON = re.compile(r"[ \t\n\r]*:[ \t\n\r]*")
_MARK = re.compile(r"[ \t\n\r]*([],}])[ \t\n\r]*")

# A string, or the characters between strings and spaces.
_PART = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*"|[^" \t\n\r]+')

# Characters other than brackets.
_NO_BRACKET = re.compile(r"[^][}{]+")


def is_json(text: str) -> bool:
    """Return whether a text is one JSON value that is not nested too deeply for the parser."""
    try:
        _CHECKER.decode(text)
    except (ValueError, RecursionError):
        return False
    return True


def loads(body: bytes) -> Any:
    """Parse a request's body; an empty body is an empty object.

    Raises:
        InvalidArgument: The body is not JSON.
    """
    return _parsed(body, _value)


def loads_records(body: bytes) -> Any:
    """Parse a body, with each record's data as text: {"records": [{"data": Json, ...}], ...}.

    Only whitespace between the parts of the data is removed. Parsing stops at the first part that
    exceeds a limit of an append: parsing all of it would take seconds, and block other calls.

    Raises:
        InvalidArgument: The body is not JSON, or exceeds a limit.
    """
    record = _members("A record", data=_text)
    return _parsed(body, _members("The body", records=_elements("records", record)))


# ---- reading -----------------------------------------------------------------------------------


def _parsed(body: bytes, read: Reader) -> Any:
    try:
        text = body.decode()
        start = _behind_space(text, 0)
        if start == len(text):
            return {}
        value, at = read(text, start)
        end = _behind_space(text, at)
        if end != len(text):
            raise JSONDecodeError("Extra data", text, end)
    except ValueError as error:
        raise InvalidArgument(f"The body is not JSON: {error}.") from error
    except RecursionError as error:
        raise InvalidArgument("The body is not JSON, or nested too deeply.") from error
    return value


def _refuse_constant(name: str) -> None:
    raise ValueError(f"Unexpected token {name}")


_DECODER = json.JSONDecoder(parse_constant=_refuse_constant)

# For texts that are kept unchanged, so that numbers of any length are accepted.
_CHECKER = json.JSONDecoder(parse_constant=_refuse_constant, parse_int=str, parse_float=str)


def _value(text: str, at: int) -> tuple[Any, int]:
    return _DECODER.raw_decode(text, at)


def _text(text: str, at: int) -> tuple[Json, int]:
    _, end = _CHECKER.raw_decode(text, at)
    if end - at > MAX_DATA_BYTES:
        raise InvalidArgument(f"A record's data must have at most {MAX_DATA_BYTES} bytes.")
    parts = _PART.findall(text, at, end)
    if text.count("[", at, end) + text.count("{", at, end) > MAX_DEPTH:
        _check_depth(parts)
    return Json("".join(parts)), end


def _check_depth(parts: Iterable[str]) -> None:
    between_strings = "".join(part for part in parts if not part.startswith('"'))
    brackets = _NO_BRACKET.sub("", between_strings)
    depths = accumulate(1 if bracket in "[{" else -1 for bracket in brackets)
    if max(depths, default=0) > MAX_DEPTH:
        raise InvalidArgument(f"A record's data must not be nested deeper than {MAX_DEPTH}.")


def _members(whose: str, **readers: Reader) -> Reader:
    """Return a reader of objects. Members with these names are read by their readers."""

    def member(text: str, at: int) -> tuple[tuple[str, Any], int]:
        if not text.startswith('"', at):
            problem = "Expecting property name enclosed in double quotes"
            raise JSONDecodeError(problem, text, at)
        name, at = _value(text, at)
        colon = _COLON.match(text, at)
        if colon is None:
            raise JSONDecodeError("Expecting ':' delimiter", text, at)
        value, at = readers.get(name, _value)(text, colon.end())
        return (name, value), at

    def read(text: str, at: int) -> tuple[Any, int]:
        if not text.startswith("{", at):
            return _value(text, at)
        members, at = _listed(text, at, "}", member, MAX_MEMBERS, whose)
        return dict(members), at

    return read


def _elements(whose: str, reader: Reader) -> Reader:
    """Return a reader of arrays whose elements are read by `reader`."""

    def read(text: str, at: int) -> tuple[Any, int]:
        if not text.startswith("[", at):
            return _value(text, at)
        return _listed(text, at, "]", reader, MAX_RECORDS, whose)

    return read


def _listed(
    text: str, at: int, end: str, reader: Reader, maximum: int, whose: str
) -> tuple[list[Any], int]:
    """Read the elements between the bracket at `at` and the matching one."""
    found: list[Any] = []
    at = _behind_space(text, at + 1)
    if text.startswith(end, at):
        return found, at + 1
    while True:
        if len(found) == maximum:
            raise InvalidArgument(f"{whose} must have at most {maximum} elements.")
        value, at = reader(text, at)
        found.append(value)
        mark = _MARK.match(text, at)
        if mark is None or mark[1] not in (",", end):
            raise JSONDecodeError("Expecting ',' delimiter", text, at)
        at = mark.end()
        if mark[1] == end:
            return found, at


def _behind_space(text: str, at: int) -> int:
    space = _SPACE.match(text, at)
    return at if space is None else space.end()
