"""One child: runs a client, a subscription and the user's callback until it must stop."""

from __future__ import annotations

import contextlib
import os
import queue
import signal
import threading
from collections.abc import Callable
from enum import Enum
from typing import Any

from pullstream.client import SubscriberClient
from pullstream.flow_control import FlowControl
from pullstream.futures import StreamingPullFuture
from pullstream_protocol.clock import SYSTEM_CLOCK
from pullstream_protocol.errors import RpcError, code_name
from pullstream_protocol.queue_wait import get_within

from .callback import UnusableCallback, load_callback, sources_of
from .control_pipe import (
    CallbackLoaded,
    CallbackUnusable,
    ControlPipe,
    StatisticsReport,
    SubscriptionFailed,
)
from .job import Job
from .labelled_output import label_output

REPORT_SECONDS = 1.0


class _Event(Enum):
    STOP = "the child must stop"
    OVER = "the subscription has ended"


_Inbox = queue.SimpleQueue[_Event]


def run(job: Job, control_pipe: ControlPipe) -> int:
    """Handle messages until the control pipe is closed or SIGTERM arrives.

    Returns:
        The exit code. 0: drained as ordered. 1: the subscription failed, or did not drain in time.
        2: the callback cannot be loaded.
    """
    if job.label:
        label_output(job.label)
    inbox: _Inbox = queue.SimpleQueue()
    for number in (signal.SIGTERM, signal.SIGINT):
        # A signal handler may write to a SimpleQueue, but must not set an Event.
        signal.signal(number, lambda *_: inbox.put(_Event.STOP))
    threading.Thread(target=_wait_for_end, args=(control_pipe, inbox), daemon=True).start()
    try:
        callback = load_callback(job.callback)
    except UnusableCallback as error:
        control_pipe.send_report(CallbackUnusable(str(error)))
        return 2
    control_pipe.send_report(CallbackLoaded(sources_of(job.callback)))
    if not inbox.empty():
        return 0
    try:
        with SubscriberClient(**job.connection) as client:
            return _subscribed(_subscribe(client, callback, job), job, control_pipe, inbox)
    except Exception as error:
        control_pipe.send_report(SubscriptionFailed(_describe(error)))
        return 1


def _wait_for_end(control_pipe: ControlPipe, inbox: _Inbox) -> None:
    for _ in control_pipe.reports():
        pass
    inbox.put(_Event.STOP)


def _subscribe(
    client: SubscriberClient, callback: Callable[..., Any], job: Job
) -> StreamingPullFuture:
    limits = FlowControl(max_messages=job.max_messages)
    if job.batch is None:
        return client.subscribe(
            job.subscription, callback, flow_control=limits, max_workers=job.threads
        )
    return client.subscribe_batch(
        job.subscription,
        callback,
        max_messages=job.batch,
        max_latency=job.max_latency,
        flow_control=limits,
        max_workers=job.threads,
    )


def _subscribed(
    future: StreamingPullFuture, job: Job, control_pipe: ControlPipe, inbox: _Inbox
) -> int:
    future.add_done_callback(lambda _: inbox.put(_Event.OVER))
    event = _reporting(future, job, control_pipe, inbox)
    if event is _Event.STOP:
        # Ends the process even if a callback or another thread of the user hangs.
        watchdog = threading.Timer(job.drain_timeout + REPORT_SECONDS, os._exit, (1,))
        watchdog.daemon = True
        watchdog.start()
        future.begin_close(job.drain_timeout, "drain")
        while event is not _Event.OVER:
            event = _reporting(future, job, control_pipe, inbox)
        # The message of a callback that still runs has been returned.
        return 1 if future.statistics().running else 0
    future.result()
    return 0


def _reporting(
    future: StreamingPullFuture, job: Job, control_pipe: ControlPipe, inbox: _Inbox
) -> _Event:
    """Report the statistics each second until there is an event, and once more then."""
    event = None
    while event is None:
        with contextlib.suppress(queue.Empty):
            event = get_within(inbox, REPORT_SECONDS)
        statistics = StatisticsReport.from_statistics(future.statistics(), SYSTEM_CLOCK.monotonic())
        if not control_pipe.send_report(statistics) and job.relayed:
            _print_into_the_void()
    return event


def _print_into_the_void() -> None:
    """Redirect output to the null device, because the parent is dead.

    Otherwise a callback that prints would fail; it must be able to finish.
    """
    void = os.open(os.devnull, os.O_WRONLY)
    for descriptor in (1, 2):
        os.dup2(void, descriptor)
    os.close(void)


def _describe(error: Exception) -> str:
    """Return an error as one line, in the format of the command line's errors."""
    text = f"{code_name(error)}: {error.message}" if isinstance(error, RpcError) else str(error)
    return " ".join(text.split())
