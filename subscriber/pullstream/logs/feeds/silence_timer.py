"""Timer that detects a silent server."""

from __future__ import annotations

from collections.abc import Callable

from pullstream_protocol.clock import Clock
from pullstream_protocol.due_thread import DueThread


class SilenceTimer:
    """Calls `on_silence` when a reader has waited for `limit` seconds without receiving anything.

    The reader's thread reports when it starts waiting and when it stops waiting. The time that
    handlers take does not count. The timer's thread wakes up only when the limit may be reached,
    and not for each received frame.

    Args:
        clock: The source of time.
        limit: Seconds of silence.
        on_silence: Called on the timer's thread. Must not block.
    """

    def __init__(self, clock: Clock, limit: float, on_silence: Callable[[], None]) -> None:
        self._clock = clock
        self._limit = limit
        self._on_silence = on_silence
        # None while the reader does not wait. Written by the reader, and by the timer's thread so
        # that it reports each silence once.
        self._waiting_since: float | None = None
        self._thread = DueThread(
            clock, self._next_due, self._check, name="pullstream-silence-timer"
        )

    def start(self) -> None:
        """Start the thread; needed once, before the reader waits."""
        self._thread.start()

    def waiting(self) -> None:
        """Report that the reader starts waiting."""
        self._waiting_since = self._clock.monotonic()

    def heard(self) -> None:
        """Report that something was received, or that the stream has ended."""
        self._waiting_since = None

    def stop(self) -> None:
        """End the thread."""
        self._thread.stop()

    def _next_due(self) -> float:
        since = self._waiting_since
        return (self._clock.monotonic() if since is None else since) + self._limit

    def _check(self) -> None:
        since = self._waiting_since
        if since is not None and self._clock.monotonic() >= since + self._limit:
            self._waiting_since = None
            self._on_silence()
