"""`pullstream topics`: create, list, describe, delete."""

from __future__ import annotations

from datetime import timedelta

import click

from .parameters import duration, key_value
from .session import Session, pass_session, session_options


@click.group("topics")
@session_options
def topics() -> None:
    """Manage topics."""


@topics.command("create")
@click.argument("topic_names", metavar="TOPIC...", nargs=-1, required=True)
@click.option("--label", "labels", type=key_value, multiple=True, help="May be repeated.")
@click.option(
    "--message-retention-duration",
    type=duration,
    help="How long the topic keeps messages for seeking, 10m to 31d. Default: not at all.",
)
@session_options
@pass_session
def create(
    session: Session,
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


@topics.command("list")
@session_options
@pass_session
def list_(session: Session) -> None:
    """List the topics of the project."""
    found = session.topics().list_topics(project=session.project_path, retry=None)
    session.output.resources(("name", "labels", "messageRetentionDuration"), found)


@topics.command("describe")
@click.argument("topic")
@session_options
@pass_session
def describe(session: Session, topic: str) -> None:
    """Show a topic's settings."""
    name = session.full_name("topics", topic)
    session.output.resource(session.topics().get_topic(topic=name, retry=None))


@topics.command("delete")
@click.argument("topic_names", metavar="TOPIC...", nargs=-1, required=True)
@session_options
@pass_session
def delete(session: Session, topic_names: tuple[str, ...]) -> None:
    """Delete topics. Their subscriptions stay, with their backlog, and get nothing new."""
    client = session.topics()
    for name in topic_names:
        topic = session.full_name("topics", name)
        client.delete_topic(topic=topic)
        session.output.done(topic, "deleted")
