"""`pullstream snapshots`: create, list, describe, delete."""

from __future__ import annotations

import click

from . import completion
from .context import CliContext, context_options, pass_session
from .groups import CommandGroup
from .parameters import key_value


@click.group("snapshots", cls=CommandGroup)
@context_options
def snapshots() -> None:
    """Manage snapshots, which keep the state of a subscription for `seek`."""


@snapshots.command("create")
@click.argument("snapshot", shell_complete=completion.snapshots)
@click.option("--subscription", required=True, help="The subscription whose state is kept.")
@click.option("--label", "labels", type=key_value, multiple=True, help="May be repeated.")
@pass_session
def create(
    session: CliContext, snapshot: str, subscription: str, labels: tuple[tuple[str, str], ...]
) -> None:
    """Create a snapshot of a subscription."""
    request = {
        "name": session.full_name("snapshots", snapshot),
        "subscription": session.full_name("subscriptions", subscription),
        "labels": dict(labels),
    }
    session.output.done(session.subscriber().create_snapshot(request).name, "created")


@snapshots.command("list")
@pass_session
def list_(session: CliContext) -> None:
    """List the snapshots of the project."""
    found = session.subscriber().list_snapshots(project=session.project_path, retry=None)
    session.output.resources(("name", "topic", "expireTime", "labels"), found)


@snapshots.command("describe")
@click.argument("snapshot", shell_complete=completion.snapshots)
@pass_session
def describe(session: CliContext, snapshot: str) -> None:
    """Show a snapshot."""
    name = session.full_name("snapshots", snapshot)
    session.output.resource(session.subscriber().get_snapshot(snapshot=name, retry=None))


@snapshots.command("delete")
@completion.several("snapshot_names", "SNAPSHOT", completion.snapshots)
@pass_session
def delete(session: CliContext, snapshot_names: tuple[str, ...]) -> None:
    """Delete snapshots."""
    delete = session.subscriber().delete_snapshot
    session.each("snapshots", snapshot_names, lambda name: delete(snapshot=name), "deleted")
