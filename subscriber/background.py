"""A client on which things run in the background until it is closed."""

from __future__ import annotations

import atexit
import os
import threading
import weakref
from collections.abc import Callable, Mapping
from operator import attrgetter
from typing import TYPE_CHECKING, Any, TypeVar

import grpc

from protocol.clock import SYSTEM_CLOCK

from .connection import ClientOptions
from .exceptions import SubscriberClosed, forked
from .futures import RunningFuture, ShutdownMode
from .service import ServiceClient

if TYPE_CHECKING:
    from google.auth.credentials import Credentials

F = TypeVar("F", bound=RunningFuture)


class BackgroundClient(ServiceClient):
    """Keeps the futures of what runs, and shuts it down before the connection ends.

    Arguments: see `ServiceClient`.
    """

    def __init__(
        self,
        *,
        credentials: Credentials | None = None,
        endpoint: str | None = None,
        client_options: ClientOptions | Mapping[str, Any] | None = None,
        channel: grpc.Channel | None = None,
        channel_credentials: grpc.ChannelCredentials | None = None,
    ) -> None:
        super().__init__(
            credentials=credentials,
            endpoint=endpoint,
            client_options=client_options,
            channel=channel,
            channel_credentials=channel_credentials,
        )
        self._process = os.getpid()
        self._lock = threading.Lock()
        self._running: set[RunningFuture] = set()

    def close(self, timeout: float | None = None, mode: ShutdownMode | None = None) -> None:
        """Shut down all that runs on this client, wait for it, and end the connection.

        Args:
            timeout: seconds for all of that, as in `StreamingPullFuture.close`. Default: no limit.
            mode: "drain" or "nack", as there. Default: as `cancel()` of each subscription does.

        Inside a callback it does not wait, as the shutdown waits for the callback: the connection
        ends with what ends last. A second call can only hurry the first. In a process that was
        forked from the one that made the client it does nothing.
        """
        if os.getpid() != self._process:
            return
        with self._lock:
            self._closed = True
            running = sorted(self._running, key=attrgetter("ends_last"))
        # All first: they shut down beside each other.
        for future in running:
            future.begin_close(timeout, mode)
        if any(future.runs_here() for future in running):
            return
        due = None if timeout is None else SYSTEM_CLOCK.monotonic() + timeout
        for future in running:
            left = None if due is None else max(due - SYSTEM_CLOCK.monotonic(), 0.0)
            # Its error, if it ended with one, belongs to whoever holds the future.
            future.wait_for_end(left)
        super().close()

    def _keep(self, start: Callable[[], F]) -> F:
        """Start something that `close` is to end; `start` returns the future that stands for it."""
        if os.getpid() != self._process:
            raise forked(self._process)
        with self._lock:
            if self.closed:
                raise SubscriberClosed("this client is closed; make a new one")
            # Under the lock: it runs before anybody can stop it, and `close` is the first who can.
            future = start()
            self._running.add(future)
        _in_use.add(self)
        future.add_done_callback(self._forget)
        return future

    def _forget(self, future: Any) -> None:
        with self._lock:
            self._running.remove(future)
            was_last = self._closed and not self._running
        if was_last:
            super().close()


# Clients on which something has run. At the interpreter's exit what they hold is given back, and
# what was acknowledged is told to the server.
_in_use: weakref.WeakSet[BackgroundClient] = weakref.WeakSet()
_EXIT_TIMEOUT = 5.0


@atexit.register
def _close_all() -> None:
    for client in list(_in_use):
        client.close(_EXIT_TIMEOUT, "nack")
