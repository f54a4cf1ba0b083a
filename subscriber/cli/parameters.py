"""The forms of values on the command line. click shows the functions' names in its help."""

from __future__ import annotations

import math
import re
from datetime import timedelta
from typing import Any

import click

from subscriber.feeds.position import Start, position_of

_UNITS = {"": "seconds", "s": "seconds", "m": "minutes", "h": "hours", "d": "days"}


class Seconds(click.FloatRange):
    """A number of seconds. Python also reads `nan`, which no range keeps out, and `inf`."""

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        seconds: float = super().convert(value, param, ctx)
        if not math.isfinite(seconds):
            self.fail(f"{value!r} is not a number of seconds.", param, ctx)
        return seconds


def duration(text: str) -> timedelta:
    """Read `90`, `90s`, `10m`, `1.5h` or `7d`."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([smhd]?)", text)
    if match is None:
        raise click.BadParameter(f"{text!r} is not a duration such as 90s, 10m, 1.5h or 7d.")
    try:
        return timedelta(**{_UNITS[match[2]]: float(match[1])})
    except OverflowError as error:
        raise click.BadParameter(f"{text!r} is longer than any time there is.") from error


def key_value(text: str) -> tuple[str, str]:
    """Read `KEY=VALUE`; the value may be empty and may hold further equals signs."""
    key, equals, value = text.partition("=")
    if not key or not equals:
        raise click.BadParameter(f"{text!r} is not of the form KEY=VALUE.")
    return key, value


def feed_start(text: str) -> Start:
    """Read `tail`, or the number of a message."""
    if text == "tail":
        return "tail"
    if not text.isdecimal():
        raise click.BadParameter(f"{text!r} is neither tail nor the number of a message.")
    try:
        start = int(text)
        position_of(start, topic="")
    except ValueError as error:
        raise click.BadParameter(f"{error}.") from error
    return start
