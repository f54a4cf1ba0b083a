"""`pullstream fetch`: print messages on request, with `client.fetch`."""

from __future__ import annotations

from collections.abc import Sequence

import click

from pullstream.message import Message

from . import completion
from .context import CliContext, pass_session
from .groups import command
from .output import Output, counted, message_record
from .parameters import Seconds

# What happens to messages that the command has only printed.
_RETURNED = "not acknowledged: returned to the subscription (--ack acknowledges the messages)"


@command("fetch")
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
    help="Acknowledge the printed messages, or return them to the subscription.",
)
@click.option("--repeat", is_flag=True, help="Repeat until Ctrl-C. Needs --ack.")
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
    """Wait for messages, print them, and return them to the subscription unless --ack is given.

    Another command gets the returned messages at once. A look with `peek` takes none. `pull` keeps
    the messages leased, so that `ack` and `nack` can settle them by their ack ids.
    """
    if min_messages > max_messages:
        raise click.UsageError("--min-messages must be no more than --max-messages.")
    if repeat and no_wait:
        raise click.UsageError("--repeat waits for messages; remove --no-wait.")
    if repeat and not ack:
        raise click.UsageError(
            "--repeat needs --ack: messages that are returned would be printed again at once."
        )
    name = session.full_name("subscriptions", subscription)
    client, output = session.subscriber(), session.output
    while True:
        messages = client.fetch(name, max_messages, timeout, min_messages, no_wait, missing_ok=True)
        # The reader of the output may be slow, so `with` keeps the leases. Its end returns the
        # messages that are not acknowledged.
        with messages:
            _print(output, messages)
            if ack:
                messages.ack()
        if not repeat:
            output.remark(_summary(len(messages), messages.reason))
            if messages and not ack:
                output.hint(_RETURNED)
            return


def _print(output: Output, messages: Sequence[Message]) -> None:
    for message in messages:
        record = message_record(message, message.publish_time, message.delivery_attempt)
        output.message(record, message.data)
    # Flush, so that messages are acknowledged only after the reader got them.
    output.flush()


def _summary(count: int, reason: str) -> str:
    if not count:
        return "no messages"
    return f"{counted(count)} ({reason.replace('_', ' ')})"
