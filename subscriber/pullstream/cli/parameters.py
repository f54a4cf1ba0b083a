"""Types of command-line values. click shows the names of these functions in its help."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any

import click

from pullstream.logs.feeds.position import Start, position_of
from pullstream.runtime.field_names import with_names

_UNITS = {"": "seconds", "s": "seconds", "m": "minutes", "h": "hours", "d": "days"}


class Seconds(click.FloatRange):
    """A finite number of seconds. Python also parses `inf` and `nan`, which no range excludes."""

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """Return the number; exit with a usage error if it is not finite or out of range."""
        seconds: float = super().convert(value, param, ctx)
        if not math.isfinite(seconds):
            self.fail(f"{value!r} is not a number of seconds.", param, ctx)
        return seconds


def duration(text: str) -> timedelta:
    """Parse `90`, `90s`, `10m`, `1.5h` or `7d`."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([smhd]?)", text)
    if match is None:
        raise click.BadParameter(f"{text!r} is not a duration such as 90s, 10m, 1.5h or 7d.")
    try:
        return timedelta(**{_UNITS[match[2]]: float(match[1])})
    except OverflowError as error:
        raise click.BadParameter(f"{text!r} is too long; it must be less than 1e9 days.") from error


def listening_address(text: str) -> tuple[str, int]:
    """Parse `PORT` or `HOST:PORT`, with an empty host for all addresses."""
    host, _, port = text.rpartition(":")
    if not port.isdecimal() or not 0 <= int(port) < 65_536:
        raise click.BadParameter(f"{text!r} is not a port such as 9464 or 127.0.0.1:9464.")
    return host.strip("[]"), int(port)


def key_value(text: str) -> tuple[str, str]:
    """Parse `KEY=VALUE`; the value may be empty and may contain further equals signs."""
    key, equals, value = text.partition("=")
    if not key or not equals:
        raise click.BadParameter(f"{text!r} does not have the form KEY=VALUE.")
    return key, value


def changed_labels(
    current: Mapping[str, str], given: Sequence[tuple[str, str]], removed: Sequence[str]
) -> dict[str, str]:
    """Return the labels of a resource after `--label` and `--remove-label`."""
    kept = {key: value for key, value in current.items() if key not in removed}
    return kept | dict(given)


def feed_start(text: str) -> Start:
    """Parse `tail` or the number of a record."""
    if text == "tail":
        return "tail"
    if not text.isdecimal():
        raise click.BadParameter(f"{text!r} is neither tail nor the number of a record.")
    try:
        start = int(text)
        position_of(start, topic="")
    except ValueError as error:
        raise click.BadParameter(f"{error}.") from error
    return start


def with_option_names(text: str, command: click.Command) -> str:
    """Return an error about arguments in Python as one about the options of a command.

    Args:
        text: The error.
        command: The command, whose parameters are named after the arguments.
    """
    options = [each for each in command.params if isinstance(each, click.Option)]
    # A flag that is off by default in Python.
    text = text.replace("metadata is False", "`metadata` is given")
    return with_names(text, {str(one.name).rstrip("_"): max(one.opts, key=len) for one in options})
