"""`pullstream subscriptions`: create, list, describe, delete, and show the state of pulls."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import click

from .context import CliContext, context_options, pass_session
from .parameters import duration, key_value

_COLUMNS = ("name", "topic", "ackDeadlineSeconds", "filter", "pushConfig", "labels")


@click.group("subscriptions")
@context_options
def subscriptions() -> None:
    """Manage subscriptions."""


@subscriptions.command("create")
@click.argument("subscription")
@click.option("--topic", required=True, help="The topic to subscribe to.")
@click.option("--ack-deadline", type=click.IntRange(10, 600), help="Seconds. Default: 10.")
@click.option("--enable-message-ordering", is_flag=True, help="Keep each key's messages in order.")
@click.option("--enable-exactly-once-delivery", is_flag=True, help="Never redeliver after an ack.")
@click.option("--message-filter", help='Example: attributes.type = "order"')
@click.option("--dead-letter-topic", help="Topic for messages that fail too many times.")
@click.option(
    "--max-delivery-attempts",
    type=click.IntRange(5, 100),
    help="Delivery attempts before a message goes to the dead-letter topic. Default: 5.",
)
@click.option("--retain-acked-messages", is_flag=True, help="Keep acked messages for seek.")
@click.option(
    "--message-retention-duration", type=duration, help="Backlog retention, 10m-31d. Default: 7d."
)
@click.option("--push-endpoint", help="URL to push messages to.")
@click.option("--label", "labels", type=key_value, multiple=True, help="May be repeated.")
@context_options
@pass_session
def create(session: CliContext, /, subscription: str, **options: Any) -> None:
    """Create a subscription."""
    request = _settings(session, **options)
    request["name"] = session.full_name("subscriptions", subscription)
    session.output.done(session.subscriber().create_subscription(request).name, "created")


def _settings(
    session: CliContext,
    *,
    topic: str,
    ack_deadline: int | None,
    enable_message_ordering: bool,
    enable_exactly_once_delivery: bool,
    message_filter: str | None,
    dead_letter_topic: str | None,
    max_delivery_attempts: int | None,
    retain_acked_messages: bool,
    message_retention_duration: timedelta | None,
    push_endpoint: str | None,
    labels: tuple[tuple[str, str], ...],
) -> dict[str, Any]:
    """Return the fields of a Subscription from the options, which have gcloud's names."""
    if max_delivery_attempts and not dead_letter_topic:
        raise click.UsageError("--max-delivery-attempts needs --dead-letter-topic.")
    settings: dict[str, Any] = {
        "topic": session.full_name("topics", topic),
        "ack_deadline_seconds": ack_deadline,
        "enable_message_ordering": enable_message_ordering,
        "enable_exactly_once_delivery": enable_exactly_once_delivery,
        "filter": message_filter,
        "retain_acked_messages": retain_acked_messages,
        "message_retention_duration": message_retention_duration,
        "labels": dict(labels),
    }
    if push_endpoint:
        settings["push_config"] = {"push_endpoint": push_endpoint}
    if dead_letter_topic:
        settings["dead_letter_policy"] = {
            "dead_letter_topic": session.full_name("topics", dead_letter_topic),
            "max_delivery_attempts": max_delivery_attempts,
        }
    return settings


@subscriptions.command("list")
@context_options
@pass_session
def list_(session: CliContext) -> None:
    """List the subscriptions of the project."""
    found = session.subscriber().list_subscriptions(project=session.project_path, retry=None)
    session.output.resources(_COLUMNS, found)


@subscriptions.command("describe")
@click.argument("subscription")
@context_options
@pass_session
def describe(session: CliContext, subscription: str) -> None:
    """Show a subscription's settings."""
    name = session.full_name("subscriptions", subscription)
    found = session.subscriber().get_subscription(subscription=name, retry=None)
    session.output.resource(found)


@subscriptions.command("state")
@click.argument("subscription")
@click.option(
    "--max-waiting",
    type=click.IntRange(1, 100_000),
    help="Set the maximum number of waiting pulls first. 512 unless set.",
)
@context_options
@pass_session
def state(session: CliContext, subscription: str, max_waiting: int | None) -> None:
    """Show the numbers of waiting, leased and redelivered messages and of waiting pulls.

    Only pullstream's broker supports this.
    """
    name = session.full_name("subscriptions", subscription)
    client = session.subscriber()
    if max_waiting is None:
        session.output.resource(client.subscription_state(name, retry=None))
    else:
        session.output.resource(client.set_max_waiting(name, max_waiting))


@subscriptions.command("delete")
@click.argument("subscription_names", metavar="SUBSCRIPTION...", nargs=-1, required=True)
@context_options
@pass_session
def delete(session: CliContext, subscription_names: tuple[str, ...]) -> None:
    """Delete subscriptions and their backlog."""
    client = session.subscriber()
    for name in subscription_names:
        subscription = session.full_name("subscriptions", name)
        client.delete_subscription(subscription=subscription)
        session.output.done(subscription, "deleted")
