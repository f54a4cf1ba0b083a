"""Parsing of Spark options, which arrive as text with case-insensitive names."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Mapping
from enum import Enum
from typing import Any, NamedTuple

from pullstream.rpc.endpoint import read_token
from pullstream_protocol.sizes import parse_size

_DURATION = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|s|m|h|d)")
_DURATION_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0}


class Kind(NamedTuple):
    """A kind of option.

    Attributes:
        form: Description of the allowed texts, for error messages.
        parse: Converts a text to a value; raises ValueError or KeyError for a wrong text.
    """

    form: str
    parse: Callable[[str], Any]


def _number(unit: float = 1.0) -> Callable[[str], float]:
    def parse(text: str) -> float:
        value = float(text) * unit
        if not 0 <= value < float("inf"):
            raise ValueError
        return value

    return parse


def _whole(text: str) -> int:
    value = int(text)
    if value < 1:
        raise ValueError
    return value


def _duration(text: str) -> float:
    match = _DURATION.fullmatch(text.strip().lower())
    if match is None:
        raise ValueError
    return float(match[1]) * _DURATION_UNITS[match[2]]


def _flag(text: str) -> bool:
    return {"true": True, "false": False}[text.strip().lower()]


def _text(text: str) -> str:
    if not text.strip():
        raise ValueError
    return text.strip()


TEXT = Kind("a non-empty text", _text)
COUNT = Kind("a whole number, 1 or more", _whole)
SIZE = Kind("a number of bytes, such as 1048576, 512k, 64m or 1g", parse_size)
MILLISECONDS = Kind("a number of milliseconds, 0 or more", _number(0.001))
SECONDS = Kind("a number of seconds, 0 or more", _number())
DURATION = Kind("a duration with its unit, such as 500ms, 90s, 10m, 24h or 7d", _duration)
FLAG = Kind("true or false", _flag)


def _token_file(text: str) -> str:
    return read_token(text.strip())


TOKEN_FILE = Kind("a file that holds a token and nothing else", _token_file)


def choice(*allowed: str) -> Kind:
    """Return a kind that allows only the given words, in upper or lower case."""
    by_lower = {word.lower(): word for word in allowed}
    return Kind(" or ".join(allowed), lambda text: by_lower[text.strip().lower()])


def one_of(values: type[Enum]) -> Kind:
    """Return a kind that allows only the values of an Enum, which are words."""
    form, parse = choice(*(one.value for one in values))
    return Kind(form, lambda text: values(parse(text)))


def read_options(kinds: Mapping[str, Kind], given: Mapping[str, str]) -> dict[str, Any]:
    """Return the values of the given options, by the names in `kinds`.

    Args:
        kinds: Name and kind of each allowed option.
        given: The options as text; the case of names does not matter.

    Raises:
        ValueError: An option is unknown (the error lists the allowed options), or its text has the
            wrong form.
    """
    names = {name.lower(): name for name in kinds}
    values = {}
    for name, text in given.items():
        known = names.get(name.lower())
        if known is None:
            raise ValueError(_unknown(name, kinds))
        form, parse = kinds[known]
        try:
            values[known] = parse(text)
        except (ValueError, KeyError):
            raise ValueError(f"option {known!r} is {text!r}; it must be {form}") from None
    return values


def _unknown(name: str, kinds: Mapping[str, Kind]) -> str:
    near = difflib.get_close_matches(
        name.lower(), [known.lower() for known in kinds], n=1, cutoff=0.75
    )
    meant = next((known for known in kinds if known.lower() in near), None)
    remark = f" (did you mean {meant!r}?)" if meant else ""
    if "cred" in name.lower() or "key" in name.lower() or "token" in name.lower():
        remark = (
            " (a broker's token is in 'tokenFile'; Google's credentials come from the environment)"
        )
    return f"option {name!r} is unknown{remark}; the options are {', '.join(sorted(kinds))}"
