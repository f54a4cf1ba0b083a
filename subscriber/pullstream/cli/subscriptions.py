"""`pullstream subscriptions`: create, update, list, describe, detach, delete, and show pulls."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import click

from pullstream_protocol import names
from pullstream_protocol.messages import pubsub_pb2 as pubsub

from . import completion
from .broker_admin import BrokerAdmin
from .context import CliContext, context_options, pass_session
from .groups import CommandGroup
from .parameters import changed_labels, duration, key_value

# Reported by a pullstream broker.
_NUMBERS = ("backlog", "oldestUnackedSeconds", "leased")
_COLUMNS = ("topic", "ackDeadlineSeconds", "filter", "pushConfig", "labels")


@click.group("subscriptions", cls=CommandGroup)
@context_options
def subscriptions() -> None:
    """Manage subscriptions."""


@subscriptions.command("create")
@click.argument("subscription", shell_complete=completion.subscriptions)
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


@subscriptions.command("update")
@click.argument("subscription", shell_complete=completion.subscriptions)
@click.option("--ack-deadline", type=click.IntRange(10, 600), help="Seconds.")
@click.option(
    "--enable-exactly-once-delivery/--no-enable-exactly-once-delivery",
    default=None,
    help="Never redeliver after an ack.",
)
@click.option(
    "--retain-acked-messages/--no-retain-acked-messages",
    default=None,
    help="Keep acked messages for seek.",
)
@click.option("--message-retention-duration", type=duration, help="Backlog retention, 10m-31d.")
@click.option("--dead-letter-topic", help="Topic for messages that fail too many times.")
@click.option(
    "--max-delivery-attempts", type=click.IntRange(5, 100), help="With a dead letter topic."
)
@click.option(
    "--clear-dead-letter-policy", is_flag=True, help="Redeliver failed messages for ever."
)
@click.option("--push-endpoint", help="URL to push messages to; empty: let clients pull.")
@click.option("--label", "labels", type=key_value, multiple=True, help="Set; may be repeated.")
@click.option("--remove-label", "removed", metavar="KEY", multiple=True, help="May be repeated.")
@pass_session
def update(session: CliContext, /, subscription: str, **options: Any) -> None:
    """Change settings of a subscription; the others stay as they are."""
    client, name = session.subscriber(), session.full_name("subscriptions", subscription)
    changed = _changes(session, client.get_subscription(subscription=name), **options)
    if not changed:
        raise click.UsageError("Nothing to change: give at least one option.")
    client.update_subscription(
        subscription={"name": name, **changed}, update_mask={"paths": sorted(changed)}
    )
    session.output.done(name, "updated")


def _changes(
    session: CliContext,
    current: pubsub.Subscription,
    *,
    ack_deadline: int | None,
    enable_exactly_once_delivery: bool | None,
    retain_acked_messages: bool | None,
    message_retention_duration: timedelta | None,
    dead_letter_topic: str | None,
    max_delivery_attempts: int | None,
    clear_dead_letter_policy: bool,
    push_endpoint: str | None,
    labels: tuple[tuple[str, str], ...],
    removed: tuple[str, ...],
) -> dict[str, Any]:
    """Return the changed fields of a Subscription from the options."""
    changed: dict[str, Any] = {
        "ack_deadline_seconds": ack_deadline,
        "enable_exactly_once_delivery": enable_exactly_once_delivery,
        "retain_acked_messages": retain_acked_messages,
        "message_retention_duration": message_retention_duration,
    }
    changed = {field: value for field, value in changed.items() if value is not None}
    policy = current.dead_letter_policy
    if dead_letter_topic or max_delivery_attempts:
        if clear_dead_letter_policy:
            raise click.UsageError("A dead letter policy cannot be set and cleared at once.")
        if not dead_letter_topic and not policy.dead_letter_topic:
            raise click.UsageError("--max-delivery-attempts needs --dead-letter-topic.")
        changed["dead_letter_policy"] = {
            "dead_letter_topic": session.full_name("topics", dead_letter_topic)
            if dead_letter_topic
            else policy.dead_letter_topic,
            "max_delivery_attempts": max_delivery_attempts or policy.max_delivery_attempts,
        }
    elif clear_dead_letter_policy:
        changed["dead_letter_policy"] = None
    if push_endpoint is not None:
        changed["push_config"] = {"push_endpoint": push_endpoint} if push_endpoint else None
    if labels or removed:
        changed["labels"] = changed_labels(current.labels, labels, removed)
    return changed


@subscriptions.command("list")
@pass_session
def list_(session: CliContext) -> None:
    """List the subscriptions of the project.

    A pullstream broker also reports the backlog and the age of its oldest message.
    """
    found = session.subscriber().list_subscriptions(project=session.project_path, retry=None)
    numbers = _numbers(session, session.project_path)
    lead = () if numbers is None else _NUMBERS
    session.output.resources(("name", *lead, *_COLUMNS), found, numbers)


@subscriptions.command("describe")
@click.argument("subscription", shell_complete=completion.subscriptions)
@pass_session
def describe(session: CliContext, subscription: str) -> None:
    """Show a subscription's settings.

    A pullstream broker also reports the backlog and the age of its oldest message.
    """
    name = session.full_name("subscriptions", subscription)
    found = session.subscriber().get_subscription(subscription=name, retry=None)
    session.output.resource(found, (_numbers(session, name) or {}).get(name))


def _numbers(session: CliContext, path: str) -> dict[str, dict[str, Any]] | None:
    """Return the numbers of the subscriptions in a project; None if the server reports none.

    Args:
        session: The settings of the run.
        path: `projects/P`, or a longer name in this project.
    """
    status = BrokerAdmin.status_of(session, names.project_of(path))
    if status is None:
        return None
    return {
        each["name"]: {field: round(each[field]) for field in _NUMBERS}
        for each in status["subscriptions"]
    }


@subscriptions.command("detach")
@completion.several("subscription_names", "SUBSCRIPTION", completion.subscriptions)
@pass_session
def detach(session: CliContext, subscription_names: tuple[str, ...]) -> None:
    """Detach subscriptions from their topics; their messages are dropped."""
    detach = session.topics().detach_subscription
    session.each(
        "subscriptions", subscription_names, lambda name: detach(subscription=name), "detached"
    )


@subscriptions.command("state")
@click.argument("subscription", shell_complete=completion.subscriptions)
@click.option(
    "--max-waiting",
    type=click.IntRange(1, 100_000),
    help="Set the maximum number of waiting pulls first. 512 unless set.",
)
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
@completion.several("subscription_names", "SUBSCRIPTION", completion.subscriptions)
@pass_session
def delete(session: CliContext, subscription_names: tuple[str, ...]) -> None:
    """Delete subscriptions and their backlog."""
    delete = session.subscriber().delete_subscription
    session.each(
        "subscriptions", subscription_names, lambda name: delete(subscription=name), "deleted"
    )
