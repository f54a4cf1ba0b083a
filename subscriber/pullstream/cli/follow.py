"""`pullstream follow`: print a topic's records from a stored position."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import click

from pullstream.follow import (
    CaughtUp,
    CheckpointFile,
    Event,
    FellBehind,
    Follower,
    Gap,
    Record,
    ServerCursor,
)
from pullstream.logs.feeds.position import Start

from . import completion
from .context import CliContext, pass_session
from .feed_events import event_of, feed_record
from .groups import command
from .output import Output
from .parameters import feed_start
from .progress import Progress, noting_signals


@command("follow")
@click.argument("topic", shell_complete=completion.topics)
@click.option(
    "--checkpoint",
    metavar="FILE",
    type=click.Path(dir_okay=False),
    help="Store the position in this SQLite file, and start from the position stored there.",
)
@click.option("--name", default="", help="Name of the position in the file. Default: the topic.")
@click.option("--cursor", help="Store the position on the broker instead, under this name.")
@click.option(
    "--after",
    type=feed_start,
    default="0",
    show_default=True,
    help="Start position if none is stored: the number of the last record you have, 0 for "
    'none, or "tail".',
)
@click.option("--message-filter", default="", help='Example: hasPrefix(attributes.tag, "public:")')
@click.option("--exclude-node", default="", help="Skip the records of this node.")
@click.option("--create", is_flag=True, help="Create the topic if it does not exist.")
@click.option("--max-messages", type=click.IntRange(min=1), help="Stop after this many.")
@click.option("--until-caught-up", is_flag=True, help="Stop after the last available record.")
@pass_session
@click.pass_context
def follow(
    context: click.Context,
    session: CliContext,
    /,
    topic: str,
    checkpoint: str | None,
    name: str,
    cursor: str | None,
    after: Start,
    message_filter: str,
    exclude_node: str,
    create: bool,
    max_messages: int | None,
    until_caught_up: bool,
) -> None:
    """Print every record of a topic in order, old and new ones, until Ctrl-C.

    The position moves after a record is printed. With --checkpoint or --cursor, the next run
    continues there. Gaps are reported on stderr, as is catching up with the topic; with --json,
    both are objects among the records.
    """
    progress = Progress()
    printer = _Printer(session.output, progress, max_messages, until_caught_up)
    with noting_signals(progress) as signals, _errors_of_follower_unlogged():
        follower = session.subscriber().follow(
            session.full_name("topics", topic),
            printer.handle,
            after,
            checkpoint=_store(session, checkpoint, name, cursor),
            on_event=printer.print_event,
            filter=message_filter,
            exclude_node=exclude_node,
            create=create,
        )
        follower.add_done_callback(lambda _: progress.stop())
        try:
            progress.wait()
        finally:
            printer.end(follower)
    if signals:
        context.exit(128 + signals[0])


class _Printer:
    """The handler and `on_event`: prints records and events, and detects the end.

    The follower's thread calls `handle` and `print_event`, the main thread calls `end`.
    """

    def __init__(
        self,
        output: Output,
        progress: Progress,
        limit: int | None,
        until_caught_up: bool,
    ) -> None:
        self._output = output
        self._progress = progress
        self._left = limit
        self._until_caught_up = until_caught_up
        self._ending = threading.Event()

    def handle(self, record: Record) -> None:
        self._output.message(feed_record(record, record.topic), record.data)
        self._output.flush()
        if self._left is not None:
            self._left -= 1
            if self._left == 0:
                self._enough()

    def print_event(self, event: Event) -> None:
        self._output.event(*_event_line(event))
        self._output.flush()
        if self._until_caught_up and isinstance(event, CaughtUp):
            self._enough()

    def _enough(self) -> None:
        self._progress.stop()
        # Wait until the follower is closing: it must not pass another record.
        self._ending.wait()

    def end(self, follower: Follower) -> None:
        """Close the follower and raise its error, if there is one."""
        follower.begin_close()
        self._ending.set()
        follower.result()


def _store(
    session: CliContext, checkpoint: str | None, name: str, cursor: str | None
) -> CheckpointFile | ServerCursor | None:
    if checkpoint is not None and cursor is not None:
        raise click.UsageError("Give either --checkpoint or --cursor, not both.")
    if name and checkpoint is None:
        raise click.UsageError("--name needs --checkpoint: it names a position in that file.")
    if cursor is not None:
        return ServerCursor(session.full_name("cursors", cursor))
    if checkpoint is None:
        return None
    try:
        return CheckpointFile(checkpoint, name)
    except ValueError as error:
        raise click.UsageError(f"--checkpoint: {error}.") from error


def _event_line(event: Event) -> tuple[dict[str, Any], str]:
    """Return an event as an object for machines and as a line for people."""
    if isinstance(event, Gap):
        return event_of(event)
    seq, at = event.position.seq, event.time.isoformat().replace("+00:00", "Z")
    record = {"seq": seq, "time": at}
    match event:
        case CaughtUp():
            return {"event": "caught-up", **record}, f"caught up at {seq}, {at}"
        case FellBehind():
            text = f"fell behind at {seq}, {at}: {event.cause}"
            return {"event": "fell-behind", "cause": event.cause, **record}, text
    # The command itself reports an error that ended the follower.
    text = f"stopped after {seq}" if event.error is None else ""
    return {"event": "closed", "reason": event.reason.value, **record}, text


@contextmanager
def _errors_of_follower_unlogged() -> Iterator[None]:
    """Suppress the follower's error log, because the command reports the error in one line."""
    log = logging.getLogger("pullstream.follow")

    def passes(record: logging.LogRecord) -> bool:
        return record.levelno < logging.ERROR

    log.addFilter(passes)
    try:
        yield
    finally:
        log.removeFilter(passes)
