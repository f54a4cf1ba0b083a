"""`pullstream listen`: print messages of a channel or a whole topic as they are published."""

from __future__ import annotations

import click

from pullstream.listen import ChannelMessage, Dropped, ListenEvent
from pullstream_protocol.errors import InvalidArgument, PullstreamError

from . import completion
from .context import CliContext, pass_session
from .groups import command
from .output import Output, message_record
from .progress import Progress, end_options, noting_signals


@command("listen")
@click.argument("topic", shell_complete=completion.topics)
@click.option(
    "--ordering-key",
    "keys",
    multiple=True,
    help="Print only messages with this ordering key; may be repeated.",
)
@click.option("--newest-only", is_flag=True, help="Skip all but the newest message of a key.")
@click.option(
    "--direct",
    is_flag=True,
    help="The server is a ChannelPublisher instead of a broker, and TOPIC is one of its channels.",
)
@end_options
@pass_session
@click.pass_context
def listen(
    context: click.Context,
    session: CliContext,
    /,
    topic: str,
    keys: tuple[str, ...],
    newest_only: bool,
    direct: bool,
    max_messages: int | None,
    idle_exit: float | None,
) -> None:
    """Print messages as they are published until Ctrl-C, and report losses.

    There is no subscription and nothing is acknowledged. Earlier messages are not available.
    """
    channel = topic if direct else session.full_name("topics", topic)
    wanted = tuple(dict.fromkeys(keys)) or (None,)
    progress = Progress(max_messages, idle_exit)
    printer = _Printer(session.output, progress, len(wanted))
    with noting_signals(progress) as signals:
        listener = session.subscriber().listen(printer.event, newest_only=newest_only)
        try:
            for key in wanted:
                listener.subscribe(
                    channel,
                    key,
                    on_message=printer.message,
                    on_failure=printer.failed,
                    on_done=printer.answered,
                )
            progress.wait()
        finally:
            progress.stop()
            listener.close()
    if isinstance(printer.failure, InvalidArgument) and not direct:
        # The session's answer for an unknown topic. Ask for the topic's own error, NOT_FOUND.
        session.topics().get_topic(topic=channel, retry=None)
    if printer.failure is not None:
        raise printer.failure
    if signals:
        context.exit(128 + signals[0])


class _Printer:
    """The callbacks: print messages and events on the listener's thread.

    Attributes:
        failure: Why no more messages will arrive; None while they may.
    """

    def __init__(self, output: Output, progress: Progress, subscriptions: int) -> None:
        self.failure: PullstreamError | OSError | None = None
        self._output = output
        self._progress = progress
        self._unanswered = self._left = subscriptions

    def message(self, message: ChannelMessage) -> None:
        if not self._progress.begin():
            return
        try:
            self._output.message(message_record(message, message.publish_time, None), message.data)
            self._output.flush()
        except OSError as error:
            # The reader of the output has closed the pipe (head).
            self.failure = error
            self._progress.stop()
        finally:
            self._progress.end()

    def event(self, event: ListenEvent) -> None:
        if isinstance(event, Dropped):
            self._output.event({"dropped": event.count}, f"{event.count} messages were dropped")
        else:
            self._output.event({"reset": True}, "the session was reset; messages may be lost")

    def answered(self, error: PullstreamError | None) -> None:
        self._unanswered -= 1
        if not self._unanswered and error is None:
            self._output.remark("listening")

    def failed(self, error: PullstreamError) -> None:
        """Report a failed subscription; end the command if it was the last one."""
        self._left -= 1
        if self._left:
            text = f"a subscription has ended: {error}"
            self._output.event({"ended": True, "error": str(error)}, text)
        else:
            self.failure = error
            self._progress.stop()
