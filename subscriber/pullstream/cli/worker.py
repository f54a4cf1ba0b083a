"""`pullstream worker`: call a function for a subscription's messages, in several processes."""

from __future__ import annotations

import os
import sys

import click

from pullstream.flow_control import FlowControl
from pullstream.rpc.endpoint import access_of
from pullstream.scheduling.scheduler import DEFAULT_WORKERS
from pullstream.worker.callback import split_name
from pullstream.worker.job import Job
from pullstream.worker.supervisor import Supervisor

from .context import CliContext, pass_session
from .groups import command
from .parameters import Seconds
from .worker_view import worker_view

# Seconds; the SDK's default.
_MAX_LATENCY = 0.1

# Maximum time that a child needs to return its unfinished messages; at most a tenth of the timeout
# is reserved for it.
_GIVING_BACK_SECONDS = 1.0


@command("worker")
@click.argument("callback", metavar="MODULE:CALLBACK")
@click.option("--subscription", required=True, help="The subscription to receive from.")
@click.option(
    "--processes", type=click.IntRange(min=1), help="Number of processes. Default: one per core."
)
@click.option(
    "--threads",
    type=click.IntRange(min=1),
    default=DEFAULT_WORKERS,
    show_default=True,
    help="Maximum number of concurrent callbacks in each process.",
)
@click.option(
    "--max-messages",
    type=click.IntRange(min=1),
    default=FlowControl().max_messages,
    show_default=True,
    help="Maximum number of outstanding messages in each process.",
)
@click.option(
    "--batch",
    type=click.IntRange(min=1),
    metavar="N",
    help="Pass lists of up to N messages to the callback.",
)
@click.option(
    "--max-latency",
    type=Seconds(min=0),
    metavar="SECONDS",
    help="Maximum time that a batch waits to be full. Needs --batch.  [default: 0.1]",
)
@click.option(
    "--shutdown-timeout",
    type=Seconds(min=0, min_open=True),
    default=30.0,
    show_default=True,
    metavar="SECONDS",
    help="Time that running callbacks have to finish after a stop signal.",
)
@click.option(
    "--reload", is_flag=True, help="Restart when a .py file changes. For development only."
)
@pass_session
@click.pass_context
def worker(
    context: click.Context,
    session: CliContext,
    callback: str,
    subscription: str,
    processes: int | None,
    threads: int,
    max_messages: int,
    batch: int | None,
    max_latency: float | None,
    shutdown_timeout: float,
    reload: bool,
) -> None:
    """Call a Python function for each message, in several processes, until SIGTERM or Ctrl-C.

    MODULE is searched in the current folder first, then on Python's path. The function may be an
    `async def`. Its argument is a message, which it acks or nacks; with --batch, a list of
    messages. A process that crashes is restarted.
    """
    if max_latency is not None and batch is None:
        raise click.UsageError("--max-latency needs --batch.")
    if batch is not None and batch > max_messages:
        raise click.UsageError(
            f"--batch must be no more than --max-messages, which is {max_messages}."
        )
    try:
        split_name(callback)
        access_of(**session.connection)
    except ValueError as error:
        raise click.UsageError(str(error)) from error
    with worker_view(as_json=session.json) as view:
        job = Job(
            callback=callback,
            subscription=session.full_name("subscriptions", subscription),
            connection=session.connection,
            threads=threads,
            max_messages=max_messages,
            batch=batch,
            max_latency=_MAX_LATENCY if max_latency is None else max_latency,
            drain_timeout=shutdown_timeout - min(_GIVING_BACK_SECONDS, shutdown_timeout / 10),
            relayed=view.relays,
        )
        supervisor = Supervisor(
            job,
            view,
            processes=processes or _cores(),
            shutdown_timeout=shutdown_timeout,
            reload=reload,
        )
        code = supervisor.run()
    if supervisor.reason is not None:
        session.output.remark(f"Error: {supervisor.reason}")
        session.output.failure(str(supervisor.reason), code)
    context.exit(code)


def _cores() -> int:
    """Return the number of cores that this process may use, if the system reports it."""
    if sys.platform == "linux":
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
