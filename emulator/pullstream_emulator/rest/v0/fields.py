"""Checked access to the members of a JSON object in a request."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from typing import Any, TypeVar

from pullstream_protocol.errors import InvalidArgument

T = TypeVar("T")

MAX_INT32 = 2**31 - 1
MAX_INT64 = 2**63 - 1

# Longest part of a bad value that an error quotes, in characters.
MAX_QUOTED = 100


class Fields:
    """An object's members by name. A null member counts as absent.

    Args:
        value: The value, which must be an object.
        known: The allowed names.
        at: Place of the object in the body, for errors: `records[0].`; empty for the body itself.

    Raises:
        InvalidArgument: The value is not an object, or has another member. All methods raise it for
            a member of the wrong kind or out of range.
    """

    def __init__(self, value: Any, known: Collection[str], at: str = "") -> None:
        if not isinstance(value, dict):
            raise InvalidArgument(
                f"{at.rstrip('.') or 'The body'} must be an object: {quoted(value)}."
            )
        for name in value:
            if name not in known:
                raise InvalidArgument(
                    f"There is no field {quoted(at + name)}; "
                    f"there {'are ' + ', '.join(known) if known else 'are none'}."
                )
        self._members: Mapping[str, Any] = value
        self._at = at

    def __contains__(self, name: str) -> bool:
        return self._members.get(name) is not None

    def path(self, name: str) -> str:
        """Return a member's full name, as used in errors."""
        return self._at + name

    def value(self, name: str) -> Any:
        """Return a member of any kind; None if absent."""
        return self._members.get(name)

    def required(self, name: str) -> Any:
        """Return a member of any kind; an absent member is an InvalidArgument."""
        if name not in self:
            raise InvalidArgument(f"{self.path(name)} is missing.")
        return self._members[name]

    def text(self, name: str) -> str:
        """Return a text; empty if absent."""
        value = self._members.get(name)
        return "" if value is None else text(value, self.path(name))

    def flag(self, name: str, default: bool) -> bool:
        """Return a boolean; `default` if absent."""
        value = self._members.get(name)
        if value is not None and not isinstance(value, bool):
            raise self._refusal(name, "must be true or false")
        return default if value is None else value

    def whole(self, name: str, default: int = 0, *, maximum: int = MAX_INT64) -> int:
        """Return an integer of 0 or more.

        Args:
            name: Name of the member.
            default: Returned if the member is absent.
            maximum: Highest allowed value.
        """
        value = self._members.get(name)
        if value is None:
            return default
        # In Python, True is an int.
        if isinstance(value, bool) or not isinstance(value, int):
            raise self._refusal(name, "must be a whole number")
        if not 0 <= value <= maximum:
            raise self._refusal(name, f"must be from 0 to {maximum}")
        return value

    def clamped(self, name: str, maximum: int) -> int:
        """Return an integer of 0 or more, reduced to `maximum` if it is higher."""
        return min(self.whole(name), maximum)

    def choice(self, name: str, choices: Mapping[str, T]) -> T | None:
        """Return the value that a text selects; None if absent."""
        value = self._members.get(name)
        if value is None:
            return None
        if not isinstance(value, str) or value not in choices:
            raise self._refusal(name, f"must be one of {', '.join(choices)}")
        return choices[value]

    def _refusal(self, name: str, demand: str) -> InvalidArgument:
        return InvalidArgument(f"{self.path(name)} {demand}: {quoted(self._members[name])}.")


def text(value: Any, at: str) -> str:
    """Return a value that must be text without invalid characters.

    Raises:
        InvalidArgument: The value is not such a text.
    """
    if not isinstance(value, str):
        raise InvalidArgument(f"{at} must be text: {quoted(value)}.")
    if not value.isascii():
        try:
            value.encode()
        except UnicodeEncodeError as error:
            raise InvalidArgument(f"{at} must be text in Unicode: {error.reason}.") from error
    return value


def quoted(value: Any) -> str:
    """Return a value as an error quotes it, shortened if it is long."""
    if isinstance(value, (dict, list)):
        return "an object" if isinstance(value, dict) else "an array"
    told = json.dumps(value)
    return told if len(told) <= MAX_QUOTED else told[:MAX_QUOTED] + "..."
