"""The gRPC channels of one client, and how they are closed."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

import grpc

from pullstream_protocol.grpc_internals import close_unavailable

from .abandoned_channels import has_its_thread
from .endpoint import WINDOW_BYTES, ServerAccess, open_channel
from .local_errors import SILENT

# Seconds that a close waits for a concurrent close in another thread. Limited, because a Ctrl-C in
# the main thread inside gRPC may leave a lock of gRPC held, and the other thread then waits for
# that lock without end.
_CLOSING_WAIT = 1.0


class ChannelPool:
    """The connections of a client: one for its calls, and one for each stream.

    A subscription's stream has a separate connection for two reasons. First, a server limits the
    number of calls on a connection, and a stream is a call as long as it is open. Second, gRPC
    guards every operation on a channel with one lock: a hundred readers and their acknowledgements
    spent most of their time waiting for it (tests/bench/NOTES.md).

    Owns the channels that it opened. Any thread may open and close.

    Guarantees: every opened channel is closed, by `close_all` at the latest. A close waits up to
    one second for a concurrent close in another thread. Otherwise the following could happen: the
    main thread returns from its close and ends the process, and the exiting interpreter stops a
    daemon thread in the middle of the other close, which crashes the process. A channel whose close
    would wait without end is left to the end of the process (`has_its_thread`).
    """

    def __init__(self, access: ServerAccess, security: grpc.ChannelCredentials | None) -> None:
        self._access = access
        self._security = security
        # Held during a close. Reentrant, because `close_all` calls `close`.
        self._closing = threading.RLock()
        self._opened: set[grpc.Channel] = set()

    def open(self, window_bytes: int = WINDOW_BYTES) -> grpc.Channel:
        """Return a new channel. It connects when the first call is made; see `open_channel`."""
        channel = open_channel(self._access, self._security, window_bytes)
        self._opened.add(channel)
        return channel

    def replace(
        self,
        silent: grpc.Channel,
        use: Callable[[grpc.Channel], object],
        window_bytes: int = WINDOW_BYTES,
    ) -> None:
        """Open a channel for a silent one, whose calls end with ConnectionReplaced.

        Has no effect if the silent channel was closed or is replaced already.

        Args:
            silent: The channel of a server that does not answer.
            use: Called with the new channel before the calls on the silent one end.
            window_bytes: As for `open_channel`.
        """
        try:
            self._opened.remove(silent)
        except KeyError:
            return
        use(self.open(window_bytes))
        # Not on this thread, which may be the thread that ends the calls.
        closing = threading.Thread(
            target=close_unavailable, args=(silent, SILENT), name="pullstream-reconnect"
        )
        with suppress(RuntimeError):
            closing.start()

    def close(self, channel: grpc.Channel) -> None:
        """Close a channel of this pool and end its calls. Idempotent."""
        with self._one_at_a_time():
            self._opened.discard(channel)
            if has_its_thread(channel):
                channel.close()

    def close_all(self) -> None:
        """Close all channels of this pool and end their calls. Idempotent."""
        with self._one_at_a_time():
            # Without a lock, which a signal handler might interrupt: each use is a single C call.
            for channel in list(self._opened):
                self.close(channel)

    @contextmanager
    def _one_at_a_time(self) -> Iterator[None]:
        has_come_in = self._closing.acquire(timeout=_CLOSING_WAIT)
        try:
            yield
        finally:
            if has_come_in:
                self._closing.release()


class SharedChannel:
    """A channel that the user passed to the client. All calls use it, and it is left open."""

    def __init__(self, channel: grpc.Channel) -> None:
        self._channel = channel

    def open(self, window_bytes: int = WINDOW_BYTES) -> grpc.Channel:
        """Return the user's channel."""
        return self._channel

    def replace(
        self,
        silent: grpc.Channel,
        use: Callable[[grpc.Channel], object],
        window_bytes: int = WINDOW_BYTES,
    ) -> None:
        """Do nothing: only the user can replace the channel."""

    def close(self, channel: grpc.Channel) -> None:
        """Do nothing: the channel belongs to the user."""

    def close_all(self) -> None:
        """Do nothing: the channel belongs to the user."""


class StreamChannel:
    """The channel of one or more streams. It is opened for the first of them. Thread-safe.

    Args:
        connections: Opens and closes channels.
        window_bytes: As for `open_channel`.
    """

    def __init__(
        self, connections: ChannelPool | SharedChannel, window_bytes: int = WINDOW_BYTES
    ) -> None:
        self._connections = connections
        self._window_bytes = window_bytes
        self._lock = threading.Lock()
        self._channel: grpc.Channel | None = None

    def get(self) -> grpc.Channel:
        """Return the present channel."""
        with self._lock:
            if self._channel is None:
                self._channel = self._connections.open(self._window_bytes)
            return self._channel

    def replace(self, silent: grpc.Channel) -> None:
        """Use a new channel from now on, unless a silent one is replaced already."""
        with self._lock:
            if self._channel is silent:
                self._connections.replace(silent, self._use, self._window_bytes)

    def _use(self, channel: grpc.Channel) -> None:
        self._channel = channel

    def close(self) -> None:
        """Close the channel, if there is one."""
        with self._lock:
            channel = self._channel
        if channel is not None:
            self._connections.close(channel)
