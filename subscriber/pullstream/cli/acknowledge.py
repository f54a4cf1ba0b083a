"""`pullstream ack` and `pullstream nack`: settle pulled messages by their ack ids."""

from __future__ import annotations

import sys
from collections.abc import Sequence

import click

from . import completion
from .context import CliContext, context_options, pass_session

# Ids in one request. Google's server accepts requests of up to 512 KiB.
_AT_ONCE = 1000


@click.command("ack")
@click.argument("subscription", shell_complete=completion.subscriptions)
@click.argument("ack_ids", metavar="[ACK_ID]...", nargs=-1)
@context_options
@pass_session
def ack(session: CliContext, subscription: str, ack_ids: tuple[str, ...]) -> None:
    """Acknowledge messages by the ack ids that `pull --json` prints.

    Without ids, they are read from the lines of stdin.
    """
    name, groups = session.full_name("subscriptions", subscription), _groups(ack_ids)
    client = session.subscriber()
    for group in groups:
        client.acknowledge(subscription=name, ack_ids=group)
        session.output.done(name, "acknowledged", len(group))


@click.command("nack")
@click.argument("subscription", shell_complete=completion.subscriptions)
@click.argument("ack_ids", metavar="[ACK_ID]...", nargs=-1)
@context_options
@pass_session
def nack(session: CliContext, subscription: str, ack_ids: tuple[str, ...]) -> None:
    """Return messages by the ack ids that `pull --json` prints, so that they are redelivered.

    Without ids, they are read from the lines of stdin.
    """
    name, groups = session.full_name("subscriptions", subscription), _groups(ack_ids)
    client = session.subscriber()
    for group in groups:
        client.modify_ack_deadline(subscription=name, ack_ids=group, ack_deadline_seconds=0)
        session.output.done(name, "nacked", len(group))


def _groups(ack_ids: Sequence[str]) -> list[list[str]]:
    """Return the ids of the arguments, or of stdin, in groups for one request each.

    Raises:
        UsageError: There are no ids.
    """
    found = list(ack_ids) or [line.strip() for line in sys.stdin if line.strip()]
    if not found:
        raise click.UsageError("There are no ack ids: give them as arguments or on stdin.")
    return [found[start : start + _AT_ONCE] for start in range(0, len(found), _AT_ONCE)]
