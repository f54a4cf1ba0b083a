"""`pullstream watch`: print the records of feeds as they are appended."""

from __future__ import annotations

import click

from pullstream.logs.feeds.frames import Frame, Opened, Records
from pullstream.logs.feeds.position import Start, position_of
from pullstream_protocol.messages import feeds_pb2 as feeds

from . import completion
from .context import CliContext, pass_session
from .feed_events import event_of, feed_record
from .groups import command
from .output import Output
from .parameters import feed_start
from .progress import Progress, end_options, noting_signals


@command("watch")
@completion.several("topics", "TOPIC", completion.topics)
@click.option(
    "--after",
    type=feed_start,
    default="tail",
    show_default=True,
    help='Start position: "tail", or the number of the last record you have; 0 for none.',
)
@click.option("--message-filter", default="", help='Example: hasPrefix(attributes.tag, "public:")')
@click.option("--exclude-node", default="", help="Skip the records of this node.")
@click.option("--no-data", is_flag=True, help="Print only numbers, times, tags and nodes.")
@end_options
@pass_session
@click.pass_context
def watch(
    context: click.Context,
    session: CliContext,
    /,
    topics: tuple[str, ...],
    after: Start,
    message_filter: str,
    exclude_node: str,
    no_data: bool,
    max_messages: int | None,
    idle_exit: float | None,
) -> None:
    """Print the records of feeds as they are appended, until Ctrl-C, and report gaps.

    Nothing is acknowledged: feeds keep no state of their readers.
    """
    names = [session.full_name("topics", topic) for topic in topics]
    progress = Progress(max_messages, idle_exit)
    printer = _Printer(session.output, progress)
    with noting_signals(progress) as signals:
        future = session.subscriber().watch(
            {name: _position(after, name, message_filter) for name in names},
            printer,
            exclude_node=exclude_node,
            include_data=not no_data,
        )
        future.add_done_callback(lambda _: progress.stop())
        try:
            progress.wait()
        finally:
            progress.stop()
            future.close()
    if printer.failure is not None:
        raise printer.failure
    # Raises the error that ended the watch, if there is one.
    future.result()
    if signals:
        context.exit(128 + signals[0])


def _position(after: Start, topic: str, message_filter: str) -> feeds.Position:
    position = feeds.Position(filter=message_filter)
    position.MergeFrom(position_of(after, topic))
    return position


class _Printer:
    """The handler: prints frames on the watch's thread."""

    def __init__(self, output: Output, progress: Progress) -> None:
        self.failure: OSError | None = None
        self._output = output
        self._progress = progress
        self._was_open = False

    def __call__(self, frame: Frame) -> None:
        try:
            self._print(frame)
            self._output.flush()
        except OSError as error:
            # The reader of the output has closed the pipe (head).
            self.failure = error
            self._progress.stop()

    def _print(self, frame: Frame) -> None:
        if isinstance(frame, Records):
            for message in frame.messages:
                if not self._progress.begin():
                    return
                try:
                    self._output.message(feed_record(message, frame.topic), message.data)
                finally:
                    self._progress.end()
        elif not isinstance(frame, Opened):
            self._output.event(*event_of(frame))
        elif self._was_open:
            self._output.event({"event": "reconnected"}, "reconnected")
        else:
            self._was_open = True
