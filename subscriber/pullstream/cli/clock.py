"""`pullstream clock`: the clock of a running pullstream broker."""

from __future__ import annotations

import click

from .broker_admin import BrokerAdmin
from .context import CliContext, context_options, pass_session


@click.group("clock")
@context_options
def clock() -> None:
    """Show or advance the clock of a running pullstream broker."""


@clock.command("show")
@context_options
@pass_session
def show(session: CliContext) -> None:
    """Print the broker's time."""
    click.echo(BrokerAdmin(session).call("GET", "/clock")["now"])


@clock.command("advance")
@click.argument("seconds", type=click.FloatRange(0))
@context_options
@pass_session
def advance(session: CliContext, seconds: float) -> None:
    """Advance the clock, with all events that become due, and print the new time."""
    answer = BrokerAdmin(session).call("POST", "/clock:advance", {"seconds": seconds})
    click.echo(answer["now"])
