"""The connections of one client, and their end."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import grpc

from .connection import WINDOW_BYTES, Target, open_channel
from .refused_threads import has_its_thread

# How long one who closes waits for another who is at it, in seconds. Not for ever: a Ctrl-C that
# the main thread meets inside gRPC may leave one of its locks held, where the other is stuck then.
_PATIENCE = 1.0


class Connections:
    """What a client opens to its server: a connection for its calls, and one for each stream.

    For two reasons a subscription's stream has a connection of its own. A server lets only so many
    calls share one, of which a stream is one for as long as it lives. And whatever is done on a
    channel gRPC guards by one lock: a hundred readers and their acknowledgements mostly queued for
    it (docs/performance.md).

    Owns the channels that it opened. Any thread may open and close.

    Guarantees: what was opened is closed, by `close_all` at the latest. Who returns from closing
    leaves nobody behind who is still at it, or has waited a second for that: of the main thread,
    which ends the process next, and a daemon that a dying interpreter would stop in the middle,
    crashing, either waits for the other.
    What cannot be closed without waiting for ever is left to the process's end (`has_its_thread`).
    """

    def __init__(self, target: Target, security: grpc.ChannelCredentials | None) -> None:
        self._target = target
        self._security = security
        self._lock = threading.Lock()
        # Held by whoever closes. Reentrant: `close_all` closes one after the other.
        self._closing = threading.RLock()
        self._opened: set[grpc.Channel] = set()

    def open(self, window_bytes: int = WINDOW_BYTES) -> grpc.Channel:
        """One more connection, which is made with the first call on it; see `open_channel`."""
        channel = open_channel(self._target, self._security, window_bytes)
        with self._lock:
            self._opened.add(channel)
        return channel

    def close(self, channel: grpc.Channel) -> None:
        """End one that was opened here, and what goes on on it. Idempotent."""
        with self._one_at_a_time():
            with self._lock:
                self._opened.discard(channel)
            if has_its_thread(channel):
                channel.close()

    def close_all(self) -> None:
        with self._one_at_a_time():
            with self._lock:
                opened = list(self._opened)
            for channel in opened:
                self.close(channel)

    @contextmanager
    def _one_at_a_time(self) -> Iterator[None]:
        has_come_in = self._closing.acquire(timeout=_PATIENCE)
        try:
            yield
        finally:
            if has_come_in:
                self._closing.release()


class GivenChannel:
    """The one channel that the user of a client has given it: for everything, and left open."""

    def __init__(self, channel: grpc.Channel) -> None:
        self._channel = channel

    def open(self, window_bytes: int = WINDOW_BYTES) -> grpc.Channel:
        return self._channel

    def close(self, channel: grpc.Channel) -> None:
        """It is not ours to close."""

    def close_all(self) -> None:
        """See `close`."""
