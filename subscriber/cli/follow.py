"""`pullstream follow`: print a topic's records from a position on, which is kept."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import click

from subscriber.feeds.position import Start
from subscriber.follow import (
    CaughtUp,
    CheckpointFile,
    Event,
    FellBehind,
    Follower,
    Gap,
    Record,
    ServerCursor,
)

from .feed_events import event_of, feed_record
from .output import Output
from .parameters import feed_start
from .progress import Progress, noting_signals
from .session import Session, pass_session, session_options


@click.command("follow")
@click.argument("topic")
@click.option(
    "--checkpoint",
    metavar="FILE",
    type=click.Path(dir_okay=False),
    help="Keep the position in this SQLite file, and begin with what it has.",
)
@click.option("--name", default="", help="Of the position in the file. Default: the topic's name.")
@click.option("--cursor", help="Keep the position with the broker instead, under this name.")
@click.option(
    "--after",
    type=feed_start,
    default="0",
    show_default=True,
    help="Where to begin when no position is kept: the number of the last message you have, 0 for "
    'none, or "tail".',
)
@click.option("--message-filter", default="", help='Such as: hasPrefix(attributes.tag, "public:")')
@click.option("--exclude-node", default="", help="Leave out the records of this node.")
@click.option("--create", is_flag=True, help="Make the topic if it does not exist.")
@click.option("--max-messages", type=click.IntRange(min=1), help="Stop after this many.")
@click.option("--until-caught-up", is_flag=True, help="Stop when there are no more for now.")
@session_options
@pass_session
@click.pass_context
def follow(
    context: click.Context,
    session: Session,
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
    """Print every record of a topic in order, those that are there and those that come, until
    Ctrl-C.

    The position moves when a record is printed. With --checkpoint or --cursor the next run goes on
    there. What cannot be had any more is told on stderr, as is the moment when there is no more for
    now; with --json, by objects among the records.
    """
    progress = Progress()
    printer = _Printer(session.output, progress, max_messages, until_caught_up)
    with noting_signals(progress) as signals, _errors_told_by_us():
        follower = session.subscriptions().follow(
            session.full_name("topics", topic),
            printer.handle,
            after,
            checkpoint=_store(session, checkpoint, name, cursor),
            on_event=printer.tell,
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
    """The handler and `on_event`. Prints, and tells when it has done as much as was asked for.

    The follower's thread calls `handle` and `tell`, the main thread `end`.
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

    def tell(self, event: Event) -> None:
        self._output.event(*_told(event))
        self._output.flush()
        if self._until_caught_up and isinstance(event, CaughtUp):
            self._enough()

    def _enough(self) -> None:
        self._progress.stop()
        # Until the follower knows: it must not hand out another.
        self._ending.wait()

    def end(self, follower: Follower) -> None:
        """End it, and raise what it ended with."""
        follower.begin_close()
        self._ending.set()
        follower.result()


def _store(
    session: Session, checkpoint: str | None, name: str, cursor: str | None
) -> CheckpointFile | ServerCursor | None:
    if checkpoint is not None and cursor is not None:
        raise click.UsageError("Give --checkpoint or --cursor, not both.")
    if name and checkpoint is None:
        raise click.UsageError("--name is of a position in the file of --checkpoint.")
    if cursor is not None:
        return ServerCursor(session.full_name("cursors", cursor))
    return None if checkpoint is None else CheckpointFile(checkpoint, name)


def _told(event: Event) -> tuple[dict[str, Any], str]:
    """An event as an object for machines, and as a line for people."""
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
    # What it ended with, if that is an error, is told by the command itself.
    text = f"stopped after {seq}" if event.error is None else ""
    return {"event": "closed", "reason": event.reason.value, **record}, text


@contextmanager
def _errors_told_by_us() -> Iterator[None]:
    """What ends the follower also ends the command, which says so in one line."""
    log = logging.getLogger("pullstream.follow")

    def passes(record: logging.LogRecord) -> bool:
        return record.levelno < logging.ERROR

    log.addFilter(passes)
    try:
        yield
    finally:
        log.removeFilter(passes)
