"""Checks of user arguments, whose errors name the argument.

Without them, Python's own error would name a detail inside the SDK.
"""

from __future__ import annotations

import math
from typing import TypeVar

N = TypeVar("N", bound=float)


def require_number(name: str, value: N) -> N:
    """Return the value if it is a number. True, False and NaN are not numbers.

    NaN is refused because every comparison with a bound is false for it.

    Args:
        name: Name of the argument, for the error.
        value: The user's value.

    Raises:
        TypeError: The value has another type.
        ValueError: The value is NaN.
    """
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise TypeError(f"{name} is {value!r}; it must be a number")
    if math.isnan(value):
        raise ValueError(f"{name} is {value!r}; it must be a number")
    return value


def require_int(name: str, value: int) -> int:
    """Return the value if it is an int; otherwise raise TypeError."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"{name} is {value!r}; it must be an int")
    return value


def require_bool(name: str, value: bool) -> bool:
    """Return the value if it is a bool; otherwise raise TypeError."""
    if not isinstance(value, bool):
        raise TypeError(f"{name} is {value!r}; it must be True or False")
    return value


def require_positive(name: str, value: int) -> int:
    """Return the value if it is an int of at least 1.

    Raises:
        TypeError, ValueError: The value has another type, or is too small.
    """
    if require_int(name, value) < 1:
        raise ValueError(f"{name} is {value}; it must be at least 1")
    return value


def require_text(name: str, value: str, form: str = "a str") -> str:
    """Return the value if it is a str that UTF-8 can encode, as in every request.

    Args:
        name: Name of the argument, for the error.
        value: The user's value.
        form: What the value must be, for the error.

    Raises:
        TypeError: The value has another type.
        ValueError: UTF-8 cannot encode the value.
    """
    if not isinstance(value, str):
        raise TypeError(f"{name} is {value!r:.80}; it must be {form}")
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise ValueError(f"{name} is {value!r:.80}, which is not valid UTF-8 ({error})") from None
    return value


def require_wait_time(name: str, seconds: float | None) -> float | None:
    """Return the seconds if they are not negative, or None for no limit.

    Raises:
        TypeError, ValueError: The value has another type, or is negative.
    """
    if seconds is not None and require_number(name, seconds) < 0:
        raise ValueError(f"{name} is {seconds}; it must not be negative")
    return seconds


def require_timeout(name: str, seconds: float | None) -> float | None:
    """Return the seconds if they are above 0, or None for no limit.

    Raises:
        TypeError, ValueError: The value has another type, or is not above 0.
    """
    if seconds is not None and require_number(name, seconds) <= 0:
        raise ValueError(f"{name} is {seconds}; it must be above 0 seconds, or None")
    return seconds
