"""`pullstream clock`: the clock of a running pullstream broker."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import click

from .broker_admin import BrokerAdmin
from .context import CliContext, context_options, pass_session
from .groups import CommandGroup
from .parameters import duration


@click.group("clock", cls=CommandGroup)
@context_options
def clock() -> None:
    """Show or advance the clock of a running pullstream broker."""


@clock.command("show")
@pass_session
def show(session: CliContext) -> None:
    """Print the broker's time."""
    _print(session, BrokerAdmin(session).call("GET", "/clock"))


@clock.command("advance")
@click.argument("by", metavar="DURATION", type=duration)
@pass_session
def advance(session: CliContext, by: timedelta) -> None:
    """Advance the clock by 90, 90s, 10m, 1.5h or 7d, and print the new time.

    Everything that becomes due until then happens first.
    """
    fields = {"seconds": by.total_seconds()}
    _print(session, BrokerAdmin(session).call("POST", "/clock:advance", fields))


def _print(session: CliContext, time: dict[str, Any]) -> None:
    session.output.result(time, time["now"])
