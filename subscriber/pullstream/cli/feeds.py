"""`pullstream feeds`: put, list, get, append, read, delete."""

from __future__ import annotations

import os
from typing import Any

import click

from pullstream.logs.feeds.client import Reading
from pullstream.logs.feeds.position import Start

from . import completion
from .context import CliContext, context_options, pass_session
from .feed_events import event_of, feed_record
from .groups import CommandGroup
from .output import Output
from .parameters import Seconds, duration, feed_start, key_value

_COLUMNS = ("topic", "headSeq", "earliestSeq", "count", "bytes", "watchers")


@click.group("feeds", cls=CommandGroup)
@context_options
def feeds() -> None:
    """Manage, write and read feeds (topics as logs with size limits)."""


@feeds.command("put")
@click.argument("topic", shell_complete=completion.topics)
@click.option("--ttl", type=duration, help="Maximum age of records. Default: no limit.")
@click.option(
    "--cap-records",
    type=click.IntRange(min=0),
    default=100_000,
    show_default=True,
    help="Maximum number of records; 0: no limit.",
)
@click.option("--cap-bytes", type=click.IntRange(min=0), help="Maximum size. Default: 0, no limit.")
@click.option(
    "--discard",
    type=click.Choice(["old", "reject"]),
    help="If the feed is full, drop the oldest records, or reject new ones. Default: old.",
)
@click.option(
    "--durability",
    type=click.Choice(["memory", "disk", "fsync"]),
    help="When appends are confirmed. Default: unchanged; the broker's setting for a new feed.",
)
@click.option(
    "--idempotency-window", type=duration, help="Time that keys are remembered. Default: 2m."
)
@pass_session
def put(session: CliContext, /, topic: str, **options: Any) -> None:
    """Create a feed, and its topic if necessary, or replace the settings of a feed.

    Settings that are not given get their defaults.
    """
    for choice in ("discard", "durability"):
        options[choice] = options[choice] and options[choice].upper()
    config = {name: value for name, value in options.items() if value is not None}
    name = session.full_name("topics", topic)
    feed = session.subscriber().feeds.put(name, config)
    # The topic may have existed before.
    done = "created" if feed.created else "updated"
    session.output.result({"name": name, done: True}, f"{name}: feed {done}")


@feeds.command("list")
@pass_session
def list_(session: CliContext) -> None:
    """List the feeds of the project."""
    found = session.subscriber().feeds.list(session.project_path, retry=None)
    session.output.resources(_COLUMNS, found)


@feeds.command("get")
@click.argument("topic", shell_complete=completion.topics)
@pass_session
def get(session: CliContext, topic: str) -> None:
    """Show a feed's settings and numbers."""
    name = session.full_name("topics", topic)
    session.output.resource(session.subscriber().feeds.get(name, retry=None))


@feeds.command("append")
@click.argument("topic", shell_complete=completion.topics)
@click.argument("messages", nargs=-1, required=True)
@click.option("--attribute", "attributes", type=key_value, multiple=True, help="May be repeated.")
@click.option("--tag", help="The attribute tag.")
@click.option("--node", help="The attribute node.")
@click.option("--ordering-key", default="", help="Ordering key of every message.")
@click.option("--idempotency-key", default="", help="Append only once per key, even if repeated.")
@click.option("--create/--no-create", default=True, help="Create a missing topic.")
@pass_session
def append(
    session: CliContext,
    topic: str,
    messages: tuple[str, ...],
    attributes: tuple[tuple[str, str], ...],
    tag: str | None,
    node: str | None,
    ordering_key: str,
    idempotency_key: str,
    create: bool,
) -> None:
    """Append MESSAGES, all or none, and print their sequence numbers."""
    named = {**dict(attributes), "tag": tag, "node": node}
    fields = {
        "attributes": {key: value for key, value in named.items() if value is not None},
        "ordering_key": ordering_key,
    }
    response = session.subscriber().feeds.append(
        session.full_name("topics", topic),
        [{"data": os.fsencode(text), **fields} for text in messages],
        idempotency_key=idempotency_key,
        create=create,
    )
    for seq in range(response.first_seq, response.last_seq + 1):
        session.output.published(str(seq))


@feeds.command("read")
@click.argument("topic", shell_complete=completion.topics)
@click.option(
    "--after",
    type=feed_start,
    default="0",
    show_default=True,
    help='Number of the last record you have, 0 for none; "tail" for only new records.',
)
@click.option("--max-messages", type=click.IntRange(min=1), help="Stop after this many.")
@click.option("--message-filter", help='Example: hasPrefix(attributes.tag, "public:")')
@click.option(
    "--wait",
    type=Seconds(0, 30),
    default=0.0,
    show_default=True,
    help="Seconds to wait for a first record.",
)
@pass_session
def read(
    session: CliContext,
    topic: str,
    after: Start,
    max_messages: int | None,
    message_filter: str | None,
    wait: float,
) -> None:
    """Print the available records, and stop when there are no more."""
    name, client = session.full_name("topics", topic), session.subscriber().feeds
    reading = client.read(
        name, after, max_messages=_at_a_time(max_messages), filter=message_filter, wait=wait
    )
    left = _print(session.output, name, reading, max_messages)
    while not reading.caught_up and left != 0:
        reading = client.read(name, reading.position, max_messages=_at_a_time(left))
        left = _print(session.output, name, reading, left)


@feeds.command("delete")
@click.argument("topic", shell_complete=completion.topics)
@click.option("--before-seq", type=click.IntRange(min=1), help="Delete records before this number.")
@click.option("--message-filter", help="Delete only records that pass this filter.")
@pass_session
def delete(
    session: CliContext, topic: str, before_seq: int | None, message_filter: str | None
) -> None:
    """Delete records of a feed on purpose. Readers are not notified."""
    if before_seq is None and message_filter is None:
        raise click.UsageError("Give --before-seq, --message-filter, or both.")
    name = session.full_name("topics", topic)
    count = session.subscriber().feeds.delete_messages(
        name, before_seq=before_seq, filter=message_filter
    )
    session.output.done(name, "deleted", count)


# Maximum number of records per request.
_MOST = 1000


def _at_a_time(left: int | None) -> int:
    return _MOST if left is None else min(left, _MOST)


def _print(output: Output, topic: str, reading: Reading, left: int | None) -> int | None:
    """Print the result of a read; return how many more records are wanted."""
    if reading.gap is not None:
        output.event(*event_of(reading.gap))
    for message in reading.messages:
        output.message(feed_record(message, topic), message.data)
    return None if left is None else left - len(reading.messages)
