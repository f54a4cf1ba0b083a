"""`pullstream listen`: print what is published from now on, of some keys or of a whole topic."""

from __future__ import annotations

import click

from protocol.errors import PullstreamError
from subscriber.listen import ChannelMessage, Dropped, ListenEvent

from .output import Output, message_record
from .progress import Progress, end_options, noting_signals
from .session import Session, pass_session, session_options


@click.command("listen")
@click.argument("topic")
@click.option(
    "--key",
    "keys",
    multiple=True,
    help="Only messages with this ordering key; may be given several times.",
)
@click.option("--newest-only", is_flag=True, help="Pass over all but the newest of a key.")
@click.option(
    "--direct",
    is_flag=True,
    help="The server is no broker but a ChannelPublisher, and TOPIC one of its channels.",
)
@end_options
@session_options
@pass_session
@click.pass_context
def listen(
    context: click.Context,
    session: Session,
    /,
    topic: str,
    keys: tuple[str, ...],
    newest_only: bool,
    direct: bool,
    max_messages: int | None,
    idle_exit: float | None,
) -> None:
    """Print messages as they are published until Ctrl-C, and tell what was lost.

    There is no subscription, nothing is acknowledged, and what was published before is not there.
    """
    channel = topic if direct else session.full_name("topics", topic)
    wanted = tuple(dict.fromkeys(keys)) or (None,)
    progress = Progress(max_messages, idle_exit)
    printer = _Printer(session.output, progress, len(wanted))
    with noting_signals(progress) as signals:
        listener = session.subscriptions().listen(printer.event, newest_only=newest_only)
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
    if printer.failure is not None:
        raise printer.failure
    if signals:
        context.exit(128 + signals[0])


class _Printer:
    """The callbacks: they print messages and events, on the listener's thread.

    failure: why nothing more is to come.
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
            # Nobody reads the output any more (head).
            self.failure = error
            self._progress.stop()
        finally:
            self._progress.end()

    def event(self, event: ListenEvent) -> None:
        if isinstance(event, Dropped):
            self._output.event({"dropped": event.count}, f"{event.count} messages were dropped")
        else:
            self._output.event({"reset": True}, "the server had forgotten us; messages may be lost")

    def answered(self, error: PullstreamError | None) -> None:
        self._unanswered -= 1
        if not self._unanswered and error is None:
            self._output.remark("listening")

    def failed(self, error: PullstreamError) -> None:
        """The command ends when nothing is left to listen to."""
        self._left -= 1
        if self._left:
            self._output.remark(f"a subscription has ended: {error}")
        else:
            self.failure = error
            self._progress.stop()
