"""`pullstream fetch`: print messages on request, with `client.fetch`."""

from __future__ import annotations

from collections.abc import Sequence

import click

from pullstream.message import Message

from . import completion
from .context import CliContext, context_options, pass_session
from .output import Output, message_record
from .parameters import Seconds

# What happens to messages that a command has only printed.
NOT_ACKNOWLEDGED = (
    "not acknowledged: delivered again after the ack deadline (--ack acknowledges the messages)"
)


@click.command("fetch")
@click.argument("subscription", shell_complete=completion.subscriptions)
@click.option(
    "--max-messages",
    type=click.IntRange(min=1),
    default=10,
    show_default=True,
    help="Maximum number of messages.",
)
@click.option(
    "--min-messages",
    type=click.IntRange(min=1),
    default=1,
    show_default=True,
    help="Wait for this many messages, until the timeout.",
)
@click.option(
    "--timeout",
    type=Seconds(min=0, min_open=True),
    default=5.0,
    show_default=True,
    help="Seconds to wait.",
)
@click.option("--no-wait", is_flag=True, help="Return the available messages without waiting.")
@click.option(
    "--ack/--no-ack",
    default=False,
    show_default=True,
    help="Acknowledge the printed messages, or let them be redelivered.",
)
@click.option("--repeat", is_flag=True, help="Repeat until Ctrl-C.")
@context_options
@pass_session
def fetch(
    session: CliContext,
    subscription: str,
    max_messages: int,
    min_messages: int,
    timeout: float,
    no_wait: bool,
    ack: bool,
    repeat: bool,
) -> None:
    """Print the available messages, or wait for the first ones."""
    if min_messages > max_messages:
        raise click.UsageError("--min-messages must be no more than --max-messages.")
    if repeat and no_wait:
        raise click.UsageError("--repeat waits for messages; remove --no-wait.")
    name = session.full_name("subscriptions", subscription)
    client, output = session.subscriber(), session.output
    while True:
        messages = client.fetch(name, max_messages, timeout, min_messages, no_wait, missing_ok=True)
        if ack:
            # The reader of the output may be slow, so `with` keeps the leases.
            with messages:
                _print(output, messages, acknowledged=True)
                messages.ack()
        else:
            _print(output, messages, acknowledged=False)
        if not repeat:
            output.remark(_summary(len(messages), messages.reason))
            if messages and not ack:
                output.hint(NOT_ACKNOWLEDGED)
            return


def _print(output: Output, messages: Sequence[Message], *, acknowledged: bool) -> None:
    for message in messages:
        record = message_record(message, message.publish_time, message.delivery_attempt)
        if not acknowledged:
            record["ackId"] = message.ack_id
        output.message(record, message.data)
    # Flush, so that messages are acknowledged only after the reader got them.
    output.flush()


def _summary(count: int, reason: str) -> str:
    if not count:
        return "no messages"
    counted = "1 message" if count == 1 else f"{count} messages"
    return f"{counted} ({reason.replace('_', ' ')})"
