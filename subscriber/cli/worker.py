"""`pullstream worker`: handle a subscription's messages by a function, in many processes."""

from __future__ import annotations

import os
import sys

import click

from subscriber.connection import locate
from subscriber.flow_control import FlowControl
from subscriber.scheduler import DEFAULT_WORKERS
from subscriber.worker.callback import split_name
from subscriber.worker.job import Job
from subscriber.worker.supervisor import Supervisor

from .parameters import Seconds
from .session import Session, pass_session, session_options
from .worker_view import worker_view

# Seconds; the SDK's default.
_MAX_LATENCY = 0.1

# What a child needs to give back what its callbacks did not finish: a tenth of the time, at most.
_GIVING_BACK_SECONDS = 1.0


@click.command("worker")
@click.argument("callback", metavar="MODULE:CALLBACK")
@click.option("--subscription", required=True, help="The subscription to receive from.")
@click.option(
    "--processes", type=click.IntRange(min=1), help="How many. Default: one for each core."
)
@click.option(
    "--threads",
    type=click.IntRange(min=1),
    default=DEFAULT_WORKERS,
    show_default=True,
    help="Callbacks at a time in each process.",
)
@click.option(
    "--max-messages",
    type=click.IntRange(min=1),
    default=FlowControl().max_messages,
    show_default=True,
    help="Unfinished messages at a time in each process.",
)
@click.option(
    "--batch",
    type=click.IntRange(min=1),
    metavar="N",
    help="The callback takes a list of up to so many messages.",
)
@click.option(
    "--max-latency",
    type=Seconds(min=0),
    metavar="SECONDS",
    help="How long a batch may wait to be full. Needs --batch.  [default: 0.1]",
)
@click.option(
    "--shutdown-timeout",
    type=Seconds(min=0, min_open=True),
    default=30.0,
    show_default=True,
    metavar="SECONDS",
    help="How long running callbacks may take to finish when it is stopped.",
)
@click.option(
    "--reload", is_flag=True, help="Start anew when a .py file changes. For development only."
)
@session_options
@pass_session
@click.pass_context
def worker(
    context: click.Context,
    session: Session,
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
    """Call a Python function for each message, in many processes, until SIGTERM or Ctrl-C.

    MODULE is looked for in the current folder, then where Python looks. The function is a plain or
    an `async def` one of one message, which it acks or nacks; with --batch, of a list of them.
    A process that crashes is started again.
    """
    if max_latency is not None and batch is None:
        raise click.UsageError("--max-latency needs --batch.")
    if batch is not None and batch > max_messages:
        raise click.UsageError(
            f"--batch must not be above --max-messages, which is {max_messages}."
        )
    try:
        split_name(callback)
        locate(endpoint=session.endpoint)
    except ValueError as error:
        raise click.UsageError(str(error)) from error
    with worker_view(as_json=session.json) as view:
        job = Job(
            callback=callback,
            subscription=session.full_name("subscriptions", subscription),
            endpoint=session.endpoint,
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
    context.exit(code)


def _cores() -> int:
    """Those that this process may use, where the system tells."""
    if sys.platform == "linux":
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
