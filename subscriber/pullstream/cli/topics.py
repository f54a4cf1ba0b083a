"""`pullstream topics`: create, update, list, describe, delete."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import click

from . import completion
from .context import CliContext, context_options, pass_session
from .groups import CommandGroup
from .parameters import changed_labels, duration, key_value


@click.group("topics", cls=CommandGroup)
@context_options
def topics() -> None:
    """Manage topics."""


@topics.command("create")
@completion.several("topic_names", "TOPIC", completion.topics)
@click.option("--label", "labels", type=key_value, multiple=True, help="May be repeated.")
@click.option(
    "--message-retention-duration",
    type=duration,
    help="Time that the topic keeps messages for seek, 10m to 31d. Default: not kept.",
)
@pass_session
def create(
    session: CliContext,
    topic_names: tuple[str, ...],
    labels: tuple[tuple[str, str], ...],
    message_retention_duration: timedelta | None,
) -> None:
    """Create topics."""
    client = session.topics()
    for name in topic_names:
        request = {
            "name": session.full_name("topics", name),
            "labels": dict(labels),
            "message_retention_duration": message_retention_duration,
        }
        session.output.done(client.create_topic(request).name, "created")


@topics.command("update")
@click.argument("topic", shell_complete=completion.topics)
@click.option("--label", "labels", type=key_value, multiple=True, help="Set; may be repeated.")
@click.option("--remove-label", "removed", metavar="KEY", multiple=True, help="May be repeated.")
@click.option(
    "--message-retention-duration",
    type=duration,
    help="Time that the topic keeps messages for seek, 10m to 31d.",
)
@click.option("--clear-message-retention-duration", is_flag=True, help="Keep no messages for seek.")
@pass_session
def update(
    session: CliContext,
    topic: str,
    labels: tuple[tuple[str, str], ...],
    removed: tuple[str, ...],
    message_retention_duration: timedelta | None,
    clear_message_retention_duration: bool,
) -> None:
    """Change settings of a topic; the others stay as they are."""
    if message_retention_duration and clear_message_retention_duration:
        raise click.UsageError("A retention cannot be set and cleared at the same time.")
    client, name = session.topics(), session.full_name("topics", topic)
    changed: dict[str, Any] = {"name": name}
    paths = []
    if labels or removed:
        current = client.get_topic(topic=name).labels
        changed["labels"] = changed_labels(current, labels, removed)
        paths.append("labels")
    if message_retention_duration or clear_message_retention_duration:
        changed["message_retention_duration"] = message_retention_duration
        paths.append("message_retention_duration")
    if not paths:
        raise click.UsageError("Nothing to change: give at least one option.")
    client.update_topic(topic=changed, update_mask={"paths": paths})
    session.output.done(name, "updated")


@topics.command("list")
@pass_session
def list_(session: CliContext) -> None:
    """List the topics of the project."""
    found = session.topics().list_topics(project=session.project_path, retry=None)
    session.output.resources(("name", "labels", "messageRetentionDuration"), found)


@topics.command("describe")
@click.argument("topic", shell_complete=completion.topics)
@pass_session
def describe(session: CliContext, topic: str) -> None:
    """Show a topic's settings."""
    name = session.full_name("topics", topic)
    session.output.resource(session.topics().get_topic(topic=name, retry=None))


@topics.command("delete")
@completion.several("topic_names", "TOPIC", completion.topics)
@pass_session
def delete(session: CliContext, topic_names: tuple[str, ...]) -> None:
    """Delete topics. Their subscriptions keep their backlog, but get no new messages."""
    delete = session.topics().delete_topic
    session.each("topics", topic_names, lambda topic: delete(topic=topic), "deleted")
