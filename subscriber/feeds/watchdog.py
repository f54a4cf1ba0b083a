"""Notices when a server has fallen silent."""

from __future__ import annotations

import threading
from collections.abc import Callable

from protocol.clock import Clock
from subscriber.streaming.inbox import Inbox


class Watchdog:
    """Raises the alarm when a reader has waited for so long and nothing came.

    The reader's thread says when it begins to wait and when that is over; in between handlers may
    take as long as they like. A thread of its own looks when the time is up, and then again: it is
    not woken for what comes.

    Args:
        limit: seconds of silence.
        on_silence: the alarm, on the watchdog's thread. Must not wait.
    """

    def __init__(self, clock: Clock, limit: float, on_silence: Callable[[], None]) -> None:
        self._clock = clock
        self._limit = limit
        self._on_silence = on_silence
        # None while nobody waits. Written by the reader, and by the alarm, which comes once.
        self._waiting_since: float | None = None
        self._stopped = False
        self._inbox: Inbox[None] = Inbox(clock)
        self._thread = threading.Thread(target=self._run, name="pullstream-watchdog", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def waiting(self) -> None:
        """The reader begins to wait."""
        self._waiting_since = self._clock.monotonic()

    def heard(self) -> None:
        """Something has come, or the stream has ended."""
        self._waiting_since = None

    def stop(self) -> None:
        """End the thread."""
        self._stopped = True
        self._inbox.wake()
        self._thread.join()
        self._inbox.close()

    def _run(self) -> None:
        while not self._stopped:
            since = self._waiting_since
            now = self._clock.monotonic()
            due = (now if since is None else since) + self._limit
            if now < due:
                self._inbox.take(due)
            else:
                self._waiting_since = None
                self._on_silence()
