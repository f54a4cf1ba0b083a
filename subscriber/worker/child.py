"""One child: a client, a subscription, and the user's callback, until told to stop."""

from __future__ import annotations

import contextlib
import os
import queue
import signal
import threading
from collections.abc import Callable
from enum import Enum
from typing import Any

from protocol.clock import SYSTEM_CLOCK
from protocol.errors import RpcError, code_name
from subscriber.client import SubscriberClient
from subscriber.flow_control import FlowControl
from subscriber.futures import StreamingPullFuture

from .callback import UnusableCallback, load_callback, sources_of
from .job import Job
from .line import Failed, Figures, Line, Loaded, Unusable

REPORT_SECONDS = 1.0


class _Event(Enum):
    STOP = "the child is to stop"
    OVER = "the subscription is over"


_Inbox = queue.SimpleQueue[_Event]


def run(job: Job, line: Line) -> int:
    """Handle messages until the line ends or SIGTERM comes; returns the exit code.

    0: drained as told. 1: the subscription failed, or did not drain in time. 2: no such callback.
    """
    inbox: _Inbox = queue.SimpleQueue()
    for number in (signal.SIGTERM, signal.SIGINT):
        # A SimpleQueue may be written to in a signal's handler, an Event may not.
        signal.signal(number, lambda *_: inbox.put(_Event.STOP))
    threading.Thread(target=_wait_for_end, args=(line, inbox), daemon=True).start()
    try:
        callback = load_callback(job.callback)
    except UnusableCallback as error:
        line.tell(Unusable(str(error)))
        return 2
    line.tell(Loaded(sources_of(job.callback)))
    if not inbox.empty():
        return 0
    try:
        with SubscriberClient(endpoint=job.endpoint) as client:
            return _subscribed(_subscribe(client, callback, job), job, line, inbox)
    except Exception as error:
        line.tell(Failed(_describe(error)))
        return 1


def _wait_for_end(line: Line, inbox: _Inbox) -> None:
    for _ in line.news():
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


def _subscribed(future: StreamingPullFuture, job: Job, line: Line, inbox: _Inbox) -> int:
    future.add_done_callback(lambda _: inbox.put(_Event.OVER))
    event = _reporting(future, job, line, inbox)
    if event is _Event.STOP:
        # Whatever hangs, a callback or a thread of the user's: this is the end of it.
        watchdog = threading.Timer(job.drain_timeout + REPORT_SECONDS, os._exit, (1,))
        watchdog.daemon = True
        watchdog.start()
        future.begin_close(job.drain_timeout, "drain")
        while event is not _Event.OVER:
            event = _reporting(future, job, line, inbox)
        # A callback that still runs was cut short, its message given back.
        return 1 if future.statistics().running else 0
    future.result()
    return 0


def _reporting(future: StreamingPullFuture, job: Job, line: Line, inbox: _Inbox) -> _Event:
    """Tell the statistics each second until there is an event, and once more then."""
    event = None
    while event is None:
        with contextlib.suppress(queue.Empty):
            event = inbox.get(timeout=REPORT_SECONDS)
        figures = Figures.of(future.statistics(), SYSTEM_CLOCK.monotonic())
        if not line.tell(figures) and job.relayed:
            _print_into_the_void()
    return event


def _print_into_the_void() -> None:
    """The parent is dead. A callback that prints must not fail for that, it is to be finished."""
    void = os.open(os.devnull, os.O_WRONLY)
    for descriptor in (1, 2):
        os.dup2(void, descriptor)
    os.close(void)


def _describe(error: Exception) -> str:
    """One line, as the command line writes its errors."""
    text = f"{code_name(error)}: {error.message}" if isinstance(error, RpcError) else str(error)
    return " ".join(text.split())
