"""Arguments of the wrong kind, named before Python's own error names something inside."""

from __future__ import annotations

import math
from typing import TypeVar

N = TypeVar("N", bound=float)


def number(name: str, value: N) -> N:
    """The value, if it is a number: True and False are none, nor is NaN, which no range keeps out.

    Raises:
        TypeError: it is something else; `name` is the argument's.
        ValueError: it is NaN.
    """
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise TypeError(f"{name} is {value!r}; it must be a number")
    if math.isnan(value):
        raise ValueError(f"{name} is {value!r}; it must be a number")
    return value


def whole(name: str, value: int) -> int:
    """The value, if it is a whole number; else as `number`."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"{name} is {value!r}; it must be an int")
    return value


def count(name: str, value: int) -> int:
    """The value, if it is a whole number from 1 on.

    Raises:
        TypeError, ValueError: it is something else, or below.
    """
    if whole(name, value) < 1:
        raise ValueError(f"{name} is {value}; it must be at least 1")
    return value


def patience(name: str, seconds: float | None) -> float | None:
    """The seconds, if they are above 0, or None, which is without end; else as `count`."""
    if seconds is not None and number(name, seconds) <= 0:
        raise ValueError(f"{name} is {seconds}; it must be above 0 seconds, or None")
    return seconds
