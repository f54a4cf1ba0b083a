"""`pullstream subscribe`: print messages as they arrive, or run a command for each."""

from __future__ import annotations

import sys
import threading

import click

from pullstream.flow_control import FlowControl
from pullstream.message import Message
from pullstream.scheduling.scheduler import ThreadScheduler

from . import completion
from .command_runner import CommandRunner
from .context import CliContext, pass_session
from .groups import command
from .output import Output, message_record
from .progress import Progress, end_options, noting_signals

# Maximum number of outstanding messages; the SDK's default.
_MAX_OUTSTANDING = FlowControl().max_messages


@command("subscribe")
@click.argument("subscription", shell_complete=completion.subscriptions)
@click.option(
    "--exec",
    "command",
    help="Run this shell command for each message: data on stdin, attributes as PUBSUB_ATTR_KEY, "
    "also PUBSUB_MESSAGE_ID, PUBSUB_ORDERING_KEY, PUBSUB_PUBLISH_TIME, PUBSUB_DELIVERY_ATTEMPT. "
    "Exit code 0 acknowledges the message, any other nacks it.",
)
@click.option(
    "--workers",
    type=click.IntRange(min=1),
    default=1,
    show_default=True,
    help="Number of messages or commands that are handled at the same time.",
)
@end_options
@pass_session
@click.pass_context
def subscribe(
    context: click.Context,
    session: CliContext,
    /,
    subscription: str,
    command: str | None,
    max_messages: int | None,
    workers: int,
    idle_exit: float | None,
) -> None:
    """Receive messages until Ctrl-C, and acknowledge each after it is printed.

    A running command is finished first; a second Ctrl-C terminates it.
    """
    name = session.full_name("subscriptions", subscription)
    progress = Progress(max_messages, idle_exit)
    runner = None if command is None else CommandRunner(command, name)
    handler = _Handler(session.output, runner, progress)
    with noting_signals(progress, None if runner is None else runner.terminate) as signals:
        future = session.subscriber().subscribe(
            name,
            handler,
            flow_control=FlowControl(
                max_messages=min(max_messages or sys.maxsize, _MAX_OUTSTANDING)
            ),
            scheduler=ThreadScheduler(max_workers=workers),
            await_callbacks_on_shutdown=True,
        )
        future.add_done_callback(lambda _: progress.stop())
        session.output.hint("receiving messages until Ctrl-C")
        try:
            progress.wait()
        finally:
            # Callbacks that are running finish, and their acknowledgements are sent.
            progress.stop()
            future.cancel()
            future.result()
    if handler.failure is not None:
        raise handler.failure
    if signals:
        context.exit(128 + signals[0])


class _Handler:
    """The callback: prints a message or runs the command, and settles the message by the result."""

    def __init__(self, output: Output, runner: CommandRunner | None, progress: Progress) -> None:
        self.failure: OSError | None = None
        self._output = output
        self._output_lock = threading.Lock()
        self._runner = runner
        self._progress = progress

    def __call__(self, message: Message) -> None:
        if not self._progress.begin():
            message.nack()
            return
        acknowledge = False
        try:
            acknowledge = self._handle(message)
        except OSError as error:
            # The reader of the output has closed the pipe (head), or no process can be started.
            # Further messages would fail in the same way.
            self.failure = error
            self._progress.stop()
        finally:
            if acknowledge:
                message.ack()
            else:
                message.nack()
            self._progress.end()

    def _handle(self, message: Message) -> bool:
        """Print the message or run the command; return whether to acknowledge the message."""
        record = message_record(message, message.publish_time, message.delivery_attempt)
        if self._runner is None:
            with self._output_lock:
                self._output.message(record, message.data)
                self._output.flush()
            return True
        code = self._runner.run(record, message.data)
        if code != 0:
            with self._output_lock:
                self._output.remark(f"message {message.message_id}: exit code {code}, nacked")
        return code == 0
