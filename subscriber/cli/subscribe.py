"""`pullstream subscribe`: print messages as they come, or run a command for each."""

from __future__ import annotations

import sys
import threading

import click

from subscriber.flow_control import FlowControl
from subscriber.message import Message
from subscriber.scheduler import ThreadScheduler

from .command_runner import run_command
from .output import Output, message_record
from .progress import Progress, end_options, noting_signals
from .session import Session, pass_session, session_options

# Messages taken on at a time; the SDK's default.
_MAX_OUTSTANDING = FlowControl().max_messages


@click.command("subscribe")
@click.argument("subscription")
@click.option(
    "--exec",
    "command",
    help="Run this shell command for each message: data on stdin, attributes as PUBSUB_ATTR_KEY, "
    "also PUBSUB_MESSAGE_ID, PUBSUB_ORDERING_KEY, PUBSUB_PUBLISH_TIME, PUBSUB_DELIVERY_ATTEMPT. "
    "Exit code 0 acknowledges the message, any other one gives it back.",
)
@click.option(
    "--workers",
    type=click.IntRange(min=1),
    default=1,
    show_default=True,
    help="Messages, or commands, at a time.",
)
@end_options
@session_options
@pass_session
@click.pass_context
def subscribe(
    context: click.Context,
    session: Session,
    /,
    subscription: str,
    command: str | None,
    max_messages: int | None,
    workers: int,
    idle_exit: float | None,
) -> None:
    """Receive messages until Ctrl-C, and acknowledge each when it is printed.

    What is being handled then is finished first; a second Ctrl-C does not wait for it.
    """
    name = session.full_name("subscriptions", subscription)
    progress = Progress(max_messages, idle_exit)
    handler = _Handler(session.output, name, command, progress)
    with noting_signals(progress) as signals:
        future = session.subscriptions().subscribe(
            name,
            handler,
            flow_control=FlowControl(
                max_messages=min(max_messages or sys.maxsize, _MAX_OUTSTANDING)
            ),
            scheduler=ThreadScheduler(max_workers=workers),
            await_callbacks_on_shutdown=True,
        )
        future.add_done_callback(lambda _: progress.stop())
        try:
            progress.wait()
        finally:
            # What is being handled is handled to its end, and its acknowledgement sent.
            progress.stop()
            future.cancel()
            future.result()
    if handler.failure is not None:
        raise handler.failure
    if signals:
        context.exit(128 + signals[0])


class _Handler:
    """The callback: prints a message or runs the command, and settles it by how that went."""

    def __init__(
        self, output: Output, subscription: str, command: str | None, progress: Progress
    ) -> None:
        self.failure: OSError | None = None
        self._output = output
        self._output_lock = threading.Lock()
        self._subscription = subscription
        self._command = command
        self._progress = progress

    def __call__(self, message: Message) -> None:
        if not self._progress.begin():
            message.nack()
            return
        acknowledge = False
        try:
            acknowledge = self._handle(message)
        except OSError as error:
            # Nobody reads the output any more (head), or no process can be started: more messages
            # would fare no better.
            self.failure = error
            self._progress.stop()
        finally:
            if acknowledge:
                message.ack()
            else:
                message.nack()
            self._progress.end()

    def _handle(self, message: Message) -> bool:
        """Print it or run the command; whether to acknowledge it."""
        record = message_record(message, message.publish_time, message.delivery_attempt)
        if self._command is None:
            with self._output_lock:
                self._output.message(record, message.data)
                self._output.flush()
            return True
        code = run_command(self._command, record, message.data, self._subscription)
        if code != 0:
            with self._output_lock:
                self._output.remark(f"message {message.message_id}: exit code {code}, given back")
        return code == 0
