"""Prefetch: settles the committed batch and writes the next segment in the background."""

from __future__ import annotations

import threading
from collections.abc import Callable
from enum import Enum


class PrefetchMode(Enum):
    """When a session acknowledges committed messages and cuts the next batch.

    Attributes:
        OFF: When the next batch is requested, which then waits for both.
        AT_ONCE: As soon as the current batch is planned, as far as that is possible without
            waiting. For tests.
        IN_BACKGROUND: On a thread, from the moment when the current batch is planned until the next
            one is requested.
    """

    OFF = "off"
    AT_ONCE = "at once"
    IN_BACKGROUND = "in background"


class Prefetcher:
    """Runs one job at a time in parallel with the session's thread.

    The session's thread starts a job and waits for its end before it touches the same objects, so
    the two never use them at the same time. A waiting job checks `is_over` to know when to stop.
    """

    def __init__(self, mode: PrefetchMode) -> None:
        self._mode = mode
        self._thread: threading.Thread | None = None
        self._is_over = True

    @property
    def is_under_way(self) -> bool:
        """Whether a job is running on the background thread."""
        return self._thread is not None and self._thread.is_alive()

    def is_over(self) -> bool:
        """Return whether the job must stop waiting. Called by the job."""
        return self._is_over

    def start(self, job: Callable[[], None]) -> None:
        """Start a job; the previous one has ended. Does not raise errors of the job's thread."""
        if self._mode is PrefetchMode.AT_ONCE:
            job()
        elif self._mode is PrefetchMode.IN_BACKGROUND:
            self._is_over = False
            # Daemon: a process that ends need not wait for work that will be repeated.
            self._thread = threading.Thread(target=job, name="pullstream-prefetch", daemon=True)
            try:
                self._thread.start()
            except RuntimeError:
                # No thread can be started; the work is then done when it is needed.
                self._thread = None

    def end(self, wake: Callable[[], None]) -> None:
        """Wait for the end of the job, if there is one; `wake` interrupts its wait."""
        if self._thread is not None:
            self._is_over = True
            wake()
            # SIGTERM may interrupt this; the cleanup then calls it again.
            self._thread.join()
            self._thread = None
