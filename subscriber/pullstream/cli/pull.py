"""`pullstream pull`: print messages with unary calls."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timezone

import click

from pullstream.client import SubscriberClient
from pullstream.streaming.ack_requests import Purpose
from pullstream_protocol.clock import SYSTEM_CLOCK
from pullstream_protocol.errors import DeadlineExceeded
from pullstream_protocol.messages import pubsub_pb2 as pubsub

from . import completion
from .acknowledge import raise_failures, settle_ids
from .context import CliContext, pass_session
from .groups import command
from .output import message_record
from .parameters import Seconds

# What happens to messages that the command has only printed.
_LEASED = (
    "not acknowledged: delivered again after the ack deadline (--ack acknowledges the messages)"
)


@command("pull")
@click.argument("subscription", shell_complete=completion.subscriptions)
@click.option(
    "--max-messages",
    type=click.IntRange(min=1),
    default=10,
    show_default=True,
    help="Stop after this many.",
)
@click.option(
    "--ack/--no-ack",
    default=False,
    show_default=True,
    help="Acknowledge the printed messages, or leave them leased until the ack deadline.",
)
@click.option(
    "--wait",
    type=Seconds(min=0),
    default=10.0,
    show_default=True,
    help="Seconds to wait for the first message.",
)
@pass_session
def pull(session: CliContext, subscription: str, max_messages: int, ack: bool, wait: float) -> None:
    """Print the available messages, and leave them leased unless --ack is given.

    With --json, the messages have their ack ids, by which `ack` and `nack` settle them until the
    ack deadline. `fetch` waits for a number of messages, and returns them. A look with `peek`
    leases none.
    """
    name = session.full_name("subscriptions", subscription)
    client, output = session.subscriber(), session.output
    nothing = True
    for response in _responses(client, name, max_messages, wait):
        nothing = False
        for received in response.received_messages:
            message = received.message
            publish_time = message.publish_time.ToDatetime(timezone.utc)
            record = message_record(message, publish_time, received.delivery_attempt)
            if not ack:
                record["ackId"] = received.ack_id
            output.message(record, message.data)
        # Flush, so that messages are acknowledged only after the reader got them.
        output.flush()
        if ack:
            ack_ids = [received.ack_id for received in response.received_messages]
            failed = settle_ids(client, name, Purpose.ACK, ack_ids)
            raise_failures(failed, len(ack_ids), "acknowledged")
    if nothing:
        output.remark("no messages")
    elif not ack:
        output.hint(_LEASED)


def _responses(
    client: SubscriberClient, subscription: str, limit: int, wait: float
) -> Iterator[pubsub.PullResponse]:
    """Yield responses with messages: the first within `wait` seconds, the others without a wait."""
    response = _first(client, subscription, limit, wait)
    while response is not None and response.received_messages:
        yield response
        limit -= len(response.received_messages)
        if limit <= 0:
            return
        response = client.pull(
            subscription=subscription, max_messages=limit, return_immediately=True
        )


def _first(
    client: SubscriberClient, subscription: str, limit: int, wait: float
) -> pubsub.PullResponse | None:
    """Return the first response with messages; None or an empty one if there were none in time."""
    clock = SYSTEM_CLOCK
    deadline = clock.monotonic() + wait
    if wait == 0:
        return client.pull(subscription=subscription, max_messages=limit, return_immediately=True)
    while (left := deadline - clock.monotonic()) > 0:
        try:
            response = client.pull(subscription=subscription, max_messages=limit, timeout=left)
        except DeadlineExceeded:
            return None
        # A server may answer early without messages.
        if response.received_messages:
            return response
    return None
