"""`pullstream fetch`: messages when asked for, as `client.fetch` gets them."""

from __future__ import annotations

from collections.abc import Sequence

import click

from subscriber.exceptions import PullTimeout
from subscriber.message import Message

from .output import Output, message_record
from .parameters import Seconds
from .session import Session, pass_session, session_options


@click.command("fetch")
@click.argument("subscription")
@click.option(
    "--max-messages",
    type=click.IntRange(min=1),
    default=10,
    show_default=True,
    help="Take so many at most.",
)
@click.option(
    "--min-messages",
    type=click.IntRange(min=1),
    default=1,
    show_default=True,
    help="Wait until there are so many, or the time is up.",
)
@click.option(
    "--timeout",
    type=Seconds(min=0, min_open=True),
    default=5.0,
    show_default=True,
    help="Seconds to wait.",
)
@click.option("--no-wait", is_flag=True, help="Take what is there, which may be nothing.")
@click.option(
    "--ack/--no-ack",
    default=False,
    show_default=True,
    help="Whether to acknowledge what was printed. What is not comes again.",
)
@click.option("--repeat", is_flag=True, help="Fetch again and again, until Ctrl-C.")
@session_options
@pass_session
def fetch(
    session: Session,
    subscription: str,
    max_messages: int,
    min_messages: int,
    timeout: float,
    no_wait: bool,
    ack: bool,
    repeat: bool,
) -> None:
    """Print the messages that are there, or else the first that come."""
    if min_messages > max_messages:
        raise click.UsageError("--min-messages must not be above --max-messages.")
    if repeat and no_wait:
        raise click.UsageError("--repeat waits for messages: leave out --no-wait.")
    name = session.full_name("subscriptions", subscription)
    client, output = session.subscriptions(), session.output
    while True:
        try:
            messages = client.fetch(name, max_messages, timeout, min_messages, no_wait)
        except PullTimeout as error:
            if not error.answered:
                raise
            if not repeat:
                output.remark("no messages")
                return
            continue
        if ack:
            # Who reads the output may be slow.
            with messages:
                _print(output, messages, acknowledged=True)
                messages.ack()
        else:
            _print(output, messages, acknowledged=False)
        if not repeat:
            output.remark(_summary(len(messages), messages.reason))
            return


def _print(output: Output, messages: Sequence[Message], *, acknowledged: bool) -> None:
    for message in messages:
        record = message_record(message, message.publish_time, message.delivery_attempt)
        if not acknowledged:
            record["ackId"] = message.ack_id
        output.message(record, message.data)
    # Acknowledged is what somebody has read, not what a closed pipe has swallowed.
    output.flush()


def _summary(count: int, reason: str) -> str:
    if not count:
        return "no messages"
    counted = "1 message" if count == 1 else f"{count} messages"
    return f"{counted} ({reason.replace('_', ' ')})"
