"""Arguments of the wrong kind, named before Python's own error names something inside."""

from __future__ import annotations

from typing import TypeVar

N = TypeVar("N", bound=float)


def number(name: str, value: N) -> N:
    """The value, if it is a number: True and False are none.

    Raises:
        TypeError: it is something else; `name` is the argument's.
    """
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise TypeError(f"{name} is {value!r}; it must be a number")
    return value


def whole(name: str, value: int) -> int:
    """The value, if it is a whole number; else as `number`."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"{name} is {value!r}; it must be an int")
    return value
