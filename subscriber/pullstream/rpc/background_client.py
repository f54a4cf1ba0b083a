"""BackgroundClient: a client that runs activities in the background until it is closed."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from operator import attrgetter
from typing import Any, TypeVar

import grpc

from pullstream.exceptions import SubscriberClosed
from pullstream.futures import RunningFuture, ShutdownMode
from pullstream.runtime.process import ForkCheck, at_exit, shares
from pullstream.runtime.validation import require_wait_time
from pullstream_protocol.call_lock import CallLock
from pullstream_protocol.clock import SYSTEM_CLOCK

from .base_client import BaseClient
from .endpoint import ConnectionArguments

F = TypeVar("F", bound=RunningFuture)


class BackgroundClient(BaseClient):
    """Keeps the futures of running activities, and shuts them down before the connection ends."""

    def _connect(self, channel: grpc.Channel | None, arguments: ConnectionArguments) -> None:
        super()._connect(channel, arguments)
        self._fork = ForkCheck()
        self._lock = CallLock(runs_user_code=True)
        self._running: set[RunningFuture] = set()

    def close(self, timeout: float | None = None, mode: ShutdownMode | None = None) -> None:
        """Shut down every activity of this client, wait for the end, and close the connection.

        Inside a callback, this method does not wait, because the shutdown waits for the callback;
        the connection closes with the last activity. A second call can only speed up the first. In
        a fork of the process that created the client, this method does nothing.

        Args:
            timeout: Seconds for the whole shutdown, as in `StreamingPullFuture.close`. None
                (default): no limit.
            mode: "drain" or "nack", as in `StreamingPullFuture.close`. None (default): each
                activity is stopped as by its `cancel()`.
        """
        if self._fork.is_child:
            return
        require_wait_time("timeout", timeout)
        with self._lock.once:
            self._closed = True
            running = sorted(self._running, key=attrgetter("ends_last"))
        # Begin all shutdowns first, so that they run in parallel.
        for future in running:
            future.begin_close(timeout, mode)
        if any(future.runs_here() for future in running):
            return
        due = None if timeout is None else SYSTEM_CLOCK.monotonic() + timeout
        for future in running:
            # Below 0 when the time is up, so that all together have one margin. The error of the
            # activity, if any, is reported to the user of the future.
            future.wait_for_end(None if due is None else due - SYSTEM_CLOCK.monotonic())
        super().close()

    def _begin_exit(self, timeout: float) -> None:
        """Begin to return all messages that are held, and to send the last acknowledgements."""
        if self._fork.is_child:
            return
        due = SYSTEM_CLOCK.monotonic() + timeout
        with self._lock.once:
            self._closed = True
            running = sorted(self._running, key=attrgetter("ends_last"))
        share = shares(lambda: max(due - SYSTEM_CLOCK.monotonic(), 0.0), len(running))
        for future in running:
            future.begin_close(share(), "nack")

    def _finish_exit(self, timeout: float) -> None:
        """Wait until all messages are returned, and close the connection."""
        self.close(timeout, "nack")

    def _keep(self, start: Callable[[], F], *, outlives_client: bool = True) -> F:
        """Start an activity that `close` must end.

        Args:
            start: Starts the activity and returns its future.
            outlives_client: Whether the activity keeps the client alive, so that it goes on when
                the user has dropped both. Default: True.

        Raises:
            SubscriberClosed: The client is closed.
            ForkedProcess: Another process created the client.
        """
        self._fork.refuse_child()
        with self._lock.once:
            if self.closed:
                raise SubscriberClosed("this client is closed; make a new one")
            # Under the lock, so that the activity runs before `close`, or any other thread, can
            # stop it.
            future = start()
            self._running.add(future)
        at_exit(self, BackgroundClient._begin_exit, BackgroundClient._finish_exit)
        future.when_done(self._forget if outlives_client else _Weak(self._forget))
        return future

    def _forget(self, future: Any) -> None:
        with self._lock.once:
            self._running.remove(future)
            was_last = self._closed and not self._running
        if was_last:
            super().close()


class _Weak:
    """A call of a method, as long as its object lives."""

    def __init__(self, method: Callable[[Any], None]) -> None:
        self._method = weakref.WeakMethod(method)

    def __call__(self, argument: Any) -> None:
        method = self._method()
        if method is not None:
            method(argument)
