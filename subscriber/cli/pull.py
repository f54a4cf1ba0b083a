"""`pullstream pull`: a few messages by single calls."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timezone

import click

from protocol.clock import SYSTEM_CLOCK
from protocol.errors import DeadlineExceeded
from protocol.messages import pubsub_pb2 as pubsub
from subscriber.client import SubscriberClient

from .output import message_record
from .parameters import Seconds
from .session import Session, pass_session, session_options


@click.command("pull")
@click.argument("subscription")
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
    help="Whether to acknowledge what was printed. What is not comes again.",
)
@click.option(
    "--wait",
    type=Seconds(min=0),
    default=10.0,
    show_default=True,
    help="Seconds to wait for the first message.",
)
@session_options
@pass_session
def pull(session: Session, subscription: str, max_messages: int, ack: bool, wait: float) -> None:
    """Print the messages that are waiting, and stop when there are no more."""
    name = session.full_name("subscriptions", subscription)
    client, output = session.subscriptions(), session.output
    nothing = True
    for response in _responses(client, name, max_messages, wait):
        nothing = False
        for received in response.received_messages:
            message = received.message
            moment = message.publish_time.ToDatetime(timezone.utc)
            record = message_record(message, moment, received.delivery_attempt)
            if not ack:
                record["ackId"] = received.ack_id
            output.message(record, message.data)
        # Acknowledged is what somebody has read, not what a closed pipe has swallowed.
        output.flush()
        if ack:
            ack_ids = [received.ack_id for received in response.received_messages]
            client.acknowledge(subscription=name, ack_ids=ack_ids)
    if nothing:
        output.remark("no messages")


def _responses(
    client: SubscriberClient, subscription: str, limit: int, wait: float
) -> Iterator[pubsub.PullResponse]:
    """Responses with messages: the first within `wait` seconds, then those that come at once."""
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
    """The first response with messages; None, or one without, when there were none in time."""
    clock = SYSTEM_CLOCK
    deadline = clock.monotonic() + wait
    if wait == 0:
        return client.pull(subscription=subscription, max_messages=limit, return_immediately=True)
    while (left := deadline - clock.monotonic()) > 0:
        try:
            response = client.pull(subscription=subscription, max_messages=limit, timeout=left)
        except DeadlineExceeded:
            return None
        # A server may answer with nothing before its time.
        if response.received_messages:
            return response
    return None
