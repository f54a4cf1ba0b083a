"""`pullstream ack` and `pullstream nack`: settle pulled messages by their ack ids."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence

import click

from pullstream.client import SubscriberClient
from pullstream.exceptions import AcknowledgeError
from pullstream.fetch.settle_call import settle
from pullstream.rpc.sansio import run
from pullstream.rpc.unary_client import rpcs_of
from pullstream.streaming.ack_requests import Purpose
from pullstream_protocol.clock import SYSTEM_CLOCK

from . import completion
from .context import CliContext, pass_session
from .groups import command

# How long requests are repeated while the server does not answer, in seconds.
_RETRY_FOR = 5.0

# Number of ids in an error.
_LISTED = 10


@command("ack")
@click.argument("subscription", shell_complete=completion.subscriptions)
@click.argument("ack_ids", metavar="[ACK_ID]...", nargs=-1)
@pass_session
def ack(session: CliContext, subscription: str, ack_ids: tuple[str, ...]) -> None:
    """Acknowledge messages by the ack ids that `pull --json` prints.

    Without ids, they are read from the lines of stdin.
    """
    _settle_all(session, subscription, Purpose.ACK, ack_ids, "acknowledged")


@command("nack")
@click.argument("subscription", shell_complete=completion.subscriptions)
@click.argument("ack_ids", metavar="[ACK_ID]...", nargs=-1)
@pass_session
def nack(session: CliContext, subscription: str, ack_ids: tuple[str, ...]) -> None:
    """Return messages by the ack ids that `pull --json` prints, so that they are redelivered.

    Without ids, they are read from the lines of stdin.
    """
    _settle_all(session, subscription, Purpose.NACK, ack_ids, "nacked")


def settle_ids(
    client: SubscriberClient, subscription: str, purpose: Purpose, ack_ids: Sequence[str]
) -> dict[str, AcknowledgeError]:
    """Acknowledge or nack messages, and return those that the server has not confirmed.

    Args:
        client: The client.
        subscription: Full name.
        purpose: ACK or NACK.
        ack_ids: The deliveries.
    """
    steps = settle(subscription, purpose, ack_ids, SYSTEM_CLOCK, retry_for=_RETRY_FOR)
    return run(steps, rpcs_of(client), SYSTEM_CLOCK)


def raise_failures(failed: Mapping[str, AcknowledgeError], total: int, what: str) -> None:
    """Raise an error that lists the ids that were not settled, if there are any.

    Args:
        failed: The ids that the server has not confirmed, with the error of each.
        total: Number of all ids.
        what: The requested outcome, such as "acknowledged".

    Raises:
        RpcError: The server refused all of them with one status.
        ClickException: The server has not confirmed some of them.
    """
    causes = {id(error.__cause__): error.__cause__ for error in failed.values()}
    if len(failed) == total and len(causes) == 1:
        (cause,) = causes.values()
        if cause is not None:
            raise cause
    if failed:
        listed = [f"{ack_id}: {error}" for ack_id, error in list(failed.items())[:_LISTED]]
        more = [f"and {len(failed) - _LISTED} more"] if len(failed) > _LISTED else []
        text = f"{len(failed)} of {total} messages are not confirmed as {what}"
        raise click.ClickException("\n".join((f"{text}:", *listed, *more)))


def _settle_all(
    session: CliContext, subscription: str, purpose: Purpose, ack_ids: Sequence[str], what: str
) -> None:
    ids = list(ack_ids) or [line.strip() for line in sys.stdin if line.strip()]
    if not ids:
        raise click.UsageError("There are no ack ids: give them as arguments or on stdin.")
    name = session.full_name("subscriptions", subscription)
    failed = settle_ids(session.subscriber(), name, purpose, ids)
    settled = sum(ack_id not in failed for ack_id in ids)
    if settled:
        session.output.done(name, what, settled)
    raise_failures(failed, len(set(ids)), what)
