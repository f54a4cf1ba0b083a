"""The forms of values on the command line."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Any

import click

_UNITS = {"": "seconds", "s": "seconds", "m": "minutes", "h": "hours", "d": "days"}


class Duration(click.ParamType):
    """`90`, `90s`, `10m`, `1.5h` or `7d`."""

    name = "duration"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> timedelta:
        match = re.fullmatch(r"(\d+(?:\.\d+)?)([smhd]?)", value)
        if match is None:
            self.fail(f"{value!r} is not a duration such as 90s, 10m, 1.5h or 7d.", param, ctx)
        return timedelta(**{_UNITS[match[2]]: float(match[1])})


class KeyValue(click.ParamType):
    """`KEY=VALUE`; the value may be empty and may hold further equals signs."""

    name = "key=value"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, str]:
        key, equals, text = value.partition("=")
        if not key or not equals:
            self.fail(f"{value!r} is not of the form KEY=VALUE.", param, ctx)
        return key, text


DURATION = Duration()
KEY_VALUE = KeyValue()
