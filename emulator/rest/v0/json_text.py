"""JSON of which parts stay as they were written.

Read into Python's values and written again, a value would not always be the same: 1.00 becomes 1.0,
1e400 becomes infinite, a member that is there twice is there once. A record's data is not ours to
change, so it is never anything but text.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping
from itertools import accumulate
from json import JSONDecodeError
from typing import Any

from emulator.feeds.appending import MAX_DATA_BYTES, MAX_RECORDS
from protocol.errors import InvalidArgument

# How deep the arrays and objects of a record's data may stand in each other. Much deeper, and
# Python cannot read it; how much deeper depends on where it is read.
MAX_DEPTH = 500

# More than any object has that is read member by member.
MAX_MEMBERS = 20

# Reads the value that begins at a position; returns it, and the position behind it.
Reader = Callable[[str, int], tuple[Any, int]]

_SPACE = re.compile(r"[ \t\n\r]+")
_COLON = re.compile(r"[ \t\n\r]*:[ \t\n\r]*")
_MARK = re.compile(r"[ \t\n\r]*([],}])[ \t\n\r]*")

# A string, or what stands between strings and spaces.
_PART = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*"|[^" \t\n\r]+')

# What is neither the beginning nor the end of an array or object.
_NO_BRACKET = re.compile(r"[^][}{]+")


class Json(str):
    """The text of a JSON value."""

    __slots__ = ()


def is_json(text: str) -> bool:
    try:
        _CHECKER.decode(text)
    except (ValueError, RecursionError):
        return False
    return True


def loads(body: bytes) -> Any:
    """The value that a request's body holds; of an empty one, an empty object.

    Raises:
        InvalidArgument: it is not JSON.
    """
    return _parsed(body, _value)


def loads_records(body: bytes) -> Any:
    """The same, with the data of each record as its text: {"records": [{"data": Json, ...}], ...}.

    Only the space between the parts of that text is left out. What is more than an append may have
    is refused where it is found: to read all of it would take seconds, and nobody else has a turn.

    Raises:
        InvalidArgument: it is not JSON, or there is too much of it.
    """
    record = _members("A record", data=_text)
    return _parsed(body, _members("The body", records=_elements("records", record)))


def dumps(value: Any) -> Json:
    """A value's text, on one line."""
    return Json(_encode(value))


def to_object(content: Mapping[str, Any]) -> Json:
    """An object with these members, on one line; those that are Json go in as they are."""
    members = (
        f"{_encode(name)}:{value if isinstance(value, Json) else _encode(value)}"
        for name, value in content.items()
    )
    return Json("{" + ",".join(members) + "}")


def to_array(elements: Iterable[Json]) -> Json:
    return Json("[" + ",".join(elements) + "]")


# Made once: to make one takes longer than most values do.
_encode = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode


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
        raise InvalidArgument("The body is not JSON, or nested too deep.") from error
    return value


def _refuse_constant(name: str) -> None:
    raise ValueError(f"Unexpected token {name}")


_DECODER = json.JSONDecoder(parse_constant=_refuse_constant)

# For texts that are kept: how many digits a number has is no matter then.
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
    """Reads an object, the members of these names by their own readers, and any other value."""

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
    """Reads an array, its elements by `reader`, and any other value."""

    def read(text: str, at: int) -> tuple[Any, int]:
        if not text.startswith("[", at):
            return _value(text, at)
        return _listed(text, at, "]", reader, MAX_RECORDS, whose)

    return read


def _listed(
    text: str, at: int, end: str, reader: Reader, maximum: int, whose: str
) -> tuple[list[Any], int]:
    """What stands between the bracket at `at` and the one that ends it."""
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
