"""`pullstream peek`: print the messages of a subscription without taking them."""

from __future__ import annotations

from datetime import timezone
from typing import Any

import click
from google.protobuf.json_format import ParseDict

from pullstream.client import SubscriberClient
from pullstream_protocol import names
from pullstream_protocol.messages import pubsub_pb2 as pubsub

from . import completion
from .broker_admin import BrokerAdmin
from .context import CliContext, pass_session
from .groups import command
from .output import Output, counted, message_record

# Most messages of one look, the limit of the broker's answer.
_MOST = 1000

# Seconds to wait for messages on a server where a look leases them.
_WAIT_SECONDS = 5.0


@command("peek")
@click.argument("subscription", shell_complete=completion.subscriptions)
@click.option(
    "--max-messages",
    type=click.IntRange(min=1, max=_MOST),
    default=10,
    show_default=True,
    help="Maximum number of messages.",
)
@click.option(
    "--yes",
    is_flag=True,
    help="Look also where a look can move messages to a dead-letter topic.",
)
@pass_session
def peek(session: CliContext, subscription: str, max_messages: int, yes: bool) -> None:
    """Print the oldest messages of a subscription without taking them.

    On a pullstream broker, nothing is leased, and leased messages are shown, too. Another server
    has no such look: the messages are pulled and returned at once, and the look counts as a
    delivery attempt. There it needs --yes if the subscription has a dead-letter policy, and is
    refused if it has ordering together with exactly-once delivery.
    """
    name = session.full_name("subscriptions", subscription)
    if BrokerAdmin.status_of(session, names.project_of(name)) is not None:
        _peek_at_broker(session, name, max_messages)
    else:
        _pull_and_return(session, name, max_messages, yes=yes)


def _peek_at_broker(session: CliContext, name: str, limit: int) -> None:
    admin, output = BrokerAdmin(session), session.output
    found = admin.messages(name, limit)
    # An acknowledged message is in the list as long as an earlier message of its key is not.
    waiting = [entry for entry in found["messages"] if entry["state"] != "acknowledged"]
    for entry in waiting:
        message = _whole(session, admin, name, entry["message"])
        publish_time = message.publish_time.ToDatetime(timezone.utc)
        # The broker counts failed deliveries. The lease is a further one.
        deliveries = entry["attempts"] + (entry["state"] == "leased")
        record = message_record(message, publish_time, deliveries)
        output.message({**record, "state": entry["state"]}, message.data)
    _summarize(output, len(waiting), found["further"])


def _whole(
    session: CliContext, admin: BrokerAdmin, subscription: str, shown: dict[str, Any]
) -> pubsub.PubsubMessage:
    """Return a message of a list, which has only the beginning of long data."""
    size = shown["dataBytes"]
    message = ParseDict(shown, pubsub.PubsubMessage(), ignore_unknown_fields=True)
    if len(message.data) == size:
        return message
    topic = session.subscriber().get_subscription(subscription=subscription).topic
    found = admin.message(topic, message.message_id)["message"]
    return ParseDict(found, pubsub.PubsubMessage(), ignore_unknown_fields=True)


def _pull_and_return(session: CliContext, name: str, limit: int, *, yes: bool) -> None:
    client, output = session.subscriber(), session.output
    _check_harm(client, name, yes=yes)
    output.remark("This server leases messages for a look: the look counts as a delivery attempt.")
    with client.fetch(name, limit, _WAIT_SECONDS, missing_ok=True) as messages:
        for message in messages:
            record = message_record(message, message.publish_time, message.delivery_attempt)
            output.message(record, message.data)
        output.flush()
    _summarize(output, len(messages), 0)


def _check_harm(client: SubscriberClient, name: str, *, yes: bool) -> None:
    """Refuse a look that would harm the subscription's consumers or messages.

    Raises:
        ClickException: It is refused.
    """
    settings = client.get_subscription(subscription=name)
    if settings.enable_message_ordering and settings.enable_exactly_once_delivery:
        raise click.ClickException(
            f"{name} has ordering and exactly-once delivery. A look would lease messages on this "
            "server, and returning them would invalidate the leases of later messages of their "
            "keys, so that acknowledgements of consumers fail. Look at a snapshot or a second "
            "subscription"
        )
    policy = settings.dead_letter_policy
    if policy.dead_letter_topic and not yes:
        raise click.ClickException(
            f"{name} has a dead-letter policy. On this server a look counts as a delivery attempt, "
            f"and after {policy.max_delivery_attempts or 5} attempts a message goes to "
            f"{policy.dead_letter_topic}. Pass --yes to look nevertheless"
        )


def _summarize(output: Output, count: int, further: int) -> None:
    output.flush()
    more = f" ({further:,} more)" if further else ""
    output.remark(f"{counted(count)}{more}" if count else "no messages")
