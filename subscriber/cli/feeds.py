"""`pullstream feeds`: put, list, get, append, read, delete."""

from __future__ import annotations

import os
from typing import Any

import click

from subscriber.feeds.client import Reading
from subscriber.feeds.position import Start

from .feed_events import event_of, feed_record
from .output import Output
from .parameters import Seconds, duration, feed_start, key_value
from .session import Session, pass_session, session_options

_COLUMNS = ("topic", "headSeq", "earliestSeq", "count", "bytes", "watchers")


@click.group("feeds")
@session_options
def feeds() -> None:
    """Manage feeds (topics as capped logs), write to them, read them."""


@feeds.command("put")
@click.argument("topic")
@click.option("--ttl", type=duration, help="Older messages are not read. Default: none is too old.")
@click.option(
    "--cap-records",
    type=click.IntRange(min=0),
    default=100_000,
    show_default=True,
    help="Most messages; 0: no limit.",
)
@click.option("--cap-bytes", type=click.IntRange(min=0), help="0, the default: no limit.")
@click.option(
    "--discard",
    type=click.Choice(["old", "reject"]),
    help="What a full feed does: lose the oldest, or refuse. Default: old.",
)
@click.option(
    "--durability",
    type=click.Choice(["memory", "disk", "fsync"]),
    help="What a crash may lose. Default: as it is; of a new feed, as the broker was told.",
)
@click.option(
    "--idempotency-window", type=duration, help="How long keys are remembered. Default: 2m."
)
@session_options
@pass_session
def put(session: Session, /, topic: str, **options: Any) -> None:
    """Make a feed, and its topic if there is none, or give it other settings.

    All settings count: what is not named gets its default.
    """
    for choice in ("discard", "durability"):
        options[choice] = options[choice] and options[choice].upper()
    config = {name: value for name, value in options.items() if value is not None}
    name = session.full_name("topics", topic)
    feed = session.feeds().put_feed(topic=name, config=config)
    session.output.done(name, "created" if feed.created else "updated")


@feeds.command("list")
@session_options
@pass_session
def list_(session: Session) -> None:
    """List the feeds of the project."""
    found = session.feeds().list_feeds(project=session.project_path, retry=None)
    session.output.resources(_COLUMNS, found)


@feeds.command("get")
@click.argument("topic")
@session_options
@pass_session
def get(session: Session, topic: str) -> None:
    """Show a feed's settings and numbers."""
    name = session.full_name("topics", topic)
    session.output.resource(session.feeds().get_feed(topic=name, retry=None))


@feeds.command("append")
@click.argument("topic")
@click.argument("messages", nargs=-1, required=True)
@click.option("--attribute", "attributes", type=key_value, multiple=True, help="May be repeated.")
@click.option("--tag", help="The attribute tag.")
@click.option("--node", help="The attribute node.")
@click.option("--ordering-key", default="", help="Ordering key of every message.")
@click.option("--idempotency-key", default="", help="Appended once, however often it is said.")
@click.option("--create/--no-create", default=True, help="Whether to make a missing topic.")
@session_options
@pass_session
def append(
    session: Session,
    topic: str,
    messages: tuple[str, ...],
    attributes: tuple[tuple[str, str], ...],
    tag: str | None,
    node: str | None,
    ordering_key: str,
    idempotency_key: str,
    create: bool,
) -> None:
    """Append MESSAGES, all or none, and print their numbers."""
    named = {**dict(attributes), "tag": tag, "node": node}
    fields = {
        "attributes": {key: value for key, value in named.items() if value is not None},
        "ordering_key": ordering_key,
    }
    response = session.feeds().append(
        session.full_name("topics", topic),
        [{"data": os.fsencode(text), **fields} for text in messages],
        idempotency_key=idempotency_key,
        create=create,
    )
    for seq in range(response.first_seq, response.last_seq + 1):
        session.output.published(str(seq))


@feeds.command("read")
@click.argument("topic")
@click.option(
    "--after",
    type=feed_start,
    default="0",
    show_default=True,
    help='Number of the last message you have, 0 for none; "tail" for what comes from now on.',
)
@click.option("--max-messages", type=click.IntRange(min=1), help="Stop after this many.")
@click.option("--message-filter", help='Such as: hasPrefix(attributes.tag, "public:")')
@click.option(
    "--wait",
    type=Seconds(0, 30),
    default=0.0,
    show_default=True,
    help="Seconds to wait for a first message.",
)
@session_options
@pass_session
def read(
    session: Session,
    topic: str,
    after: Start,
    max_messages: int | None,
    message_filter: str | None,
    wait: float,
) -> None:
    """Print the messages that are there, and stop when there are no more."""
    name, client = session.full_name("topics", topic), session.feeds()
    reading = client.read(
        name, after, max_messages=_at_a_time(max_messages), filter=message_filter, wait=wait
    )
    left = _print(session.output, name, reading, max_messages)
    while not reading.caught_up and left != 0:
        reading = client.read(name, reading.position, max_messages=_at_a_time(left))
        left = _print(session.output, name, reading, left)


@feeds.command("delete")
@click.argument("topic")
@click.option("--before-seq", type=click.IntRange(min=1), help="Those with a lower number.")
@click.option("--message-filter", help="Those that pass.")
@session_options
@pass_session
def delete(
    session: Session, topic: str, before_seq: int | None, message_filter: str | None
) -> None:
    """Delete messages of a feed on purpose; its readers are not told."""
    if before_seq is None and message_filter is None:
        raise click.UsageError("Which messages? Give --before-seq, --message-filter, or both.")
    name = session.full_name("topics", topic)
    count = session.feeds().delete_messages(name, before_seq=before_seq, filter=message_filter)
    session.output.done(name, "deleted", count)


# What a read brings at most, and what is asked for at a time.
_MOST = 1000


def _at_a_time(left: int | None) -> int:
    return _MOST if left is None else min(left, _MOST)


def _print(output: Output, topic: str, reading: Reading, left: int | None) -> int | None:
    """Print what was read; returns how many more are wanted."""
    if reading.gap is not None:
        output.event(*event_of(reading.gap))
    for message in reading.messages:
        output.message(feed_record(message, topic), message.data)
    return None if left is None else left - len(reading.messages)
