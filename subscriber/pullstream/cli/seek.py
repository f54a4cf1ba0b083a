"""`pullstream seek` and `pullstream purge`: move a subscription to another time."""

from __future__ import annotations

import re
from datetime import datetime, timezone

import click

from pullstream_protocol import names
from pullstream_protocol.clock import SYSTEM_CLOCK

from . import completion
from .broker_admin import BrokerAdmin
from .context import CliContext, pass_session
from .groups import command
from .parameters import duration


@command("seek")
@click.argument("subscription", shell_complete=completion.subscriptions)
@click.option(
    "--time", "when", help="2026-11-26T10:00:00Z or ...+02:00, or a duration before now: 10m, 2h."
)
@click.option("--snapshot", help="The snapshot to restore.")
@pass_session
def seek(session: CliContext, subscription: str, when: str | None, snapshot: str | None) -> None:
    """Move a subscription to a time or to a snapshot.

    Messages published before that time count as acknowledged, and later ones are delivered again,
    if the topic or the subscription has kept them.
    """
    if (when is None) == (snapshot is None):
        raise click.UsageError("Give either --time or --snapshot.")
    name = session.full_name("subscriptions", subscription)
    if when is not None:
        time = _time(session, name, when)
        session.subscriber().seek(subscription=name, time=time)
    else:
        kept = session.full_name("snapshots", snapshot or "")
        session.subscriber().seek(subscription=name, snapshot=kept)
    session.output.done(name, "moved")


@command("purge")
@click.argument("subscription", shell_complete=completion.subscriptions)
@click.confirmation_option(prompt="Acknowledge every message of the subscription?")
@pass_session
def purge(session: CliContext, subscription: str) -> None:
    """Acknowledge every message of a subscription that is published until now."""
    name = session.full_name("subscriptions", subscription)
    session.subscriber().seek(subscription=name, time=_now(session, name))
    session.output.done(name, "purged")


def _time(session: CliContext, subscription: str, text: str) -> datetime:
    """Parse a time, or a duration before the server's time."""
    if re.fullmatch(r"\d+(\.\d+)?[smhd]?", text):
        return _now(session, subscription) - duration(text)
    form = (
        f"--time is {text!r}; it must be a time such as 2026-11-26T10:00:00Z, or a duration before "
        "now, such as 10m."
    )
    try:
        time = datetime.fromisoformat(text.replace("Z", "+00:00"))
    except ValueError:
        raise click.UsageError(form) from None
    if time.tzinfo is None:
        # A guess could acknowledge the messages of hours.
        raise click.UsageError(
            f"{form} It has no offset from UTC: add Z for UTC, or an offset such as +02:00."
        )
    return time


def _now(session: CliContext, subscription: str) -> datetime:
    """Return the time of the server: a broker's clock may have been advanced."""
    status = BrokerAdmin.status_of(session, names.project_of(subscription))
    seconds = SYSTEM_CLOCK.now() if status is None else status["broker"]["time"]
    return datetime.fromtimestamp(seconds, timezone.utc)
