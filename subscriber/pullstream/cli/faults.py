"""`pullstream faults`: let a running pullstream broker fail on request."""

from __future__ import annotations

import json

import click

from .broker_admin import BrokerAdmin
from .context import CliContext, context_options, pass_session
from .groups import CommandGroup


@click.group("faults", cls=CommandGroup)
@context_options
def faults() -> None:
    """Let a running broker fail on request, for tests."""


@faults.command("add")
@click.argument("fault")
@pass_session
def add(session: CliContext, fault: str) -> None:
    """Add a fault, such as error:Publish:UNAVAILABLE:times=5, and print its id."""
    added = BrokerAdmin(session).call("POST", "/faults", {"fault": fault})
    session.output.result(added, str(added["id"]))


@faults.command("list")
@pass_session
def list_(session: CliContext) -> None:
    """List the active faults, one JSON object per line."""
    for fault in BrokerAdmin(session).call("GET", "/faults")["faults"]:
        click.echo(json.dumps(fault))


@faults.command("clear")
@click.argument("fault_ids", metavar="[ID]...", type=int, nargs=-1)
@pass_session
def clear(session: CliContext, fault_ids: tuple[int, ...]) -> None:
    """Remove the given faults, or all."""
    admin = BrokerAdmin(session)
    for path in [f"/faults/{fault_id}" for fault_id in fault_ids] or ["/faults"]:
        admin.call("DELETE", path)
