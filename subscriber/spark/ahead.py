"""Work that is done before it is asked for, and after it was promised, while nobody waits."""

from __future__ import annotations

import threading
from collections.abc import Callable
from enum import Enum


class WorkAhead(Enum):
    """When a session acknowledges what is committed and cuts the next batch.

    OFF: when it is asked for the next batch, which waits for both.
    AT_ONCE: as soon as the batch before is planned, as far as possible without waiting. For tests.
    IN_BACKGROUND: from then on, on a thread, until the next batch is asked for.
    """

    OFF = "off"
    AT_ONCE = "at once"
    IN_BACKGROUND = "in background"


class Ahead:
    """One job at a time beside the session's thread.

    That thread starts a job and waits for its end before it touches what the job works on, so the
    two are never at it together. A job that waits for something asks `is_over` whether to go on.
    """

    def __init__(self, mode: WorkAhead) -> None:
        self._mode = mode
        self._thread: threading.Thread | None = None
        self._is_over = True

    @property
    def is_under_way(self) -> bool:
        return self._thread is not None and self._thread.is_alive()

    def is_over(self) -> bool:
        """For the job: whether there is nothing more to wait for."""
        return self._is_over

    def start(self, job: Callable[[], None]) -> None:
        """Begin a job; the one before has ended. Raises nothing of the job's own."""
        if self._mode is WorkAhead.AT_ONCE:
            job()
        elif self._mode is WorkAhead.IN_BACKGROUND:
            self._is_over = False
            # Daemon: a process that is to end need not wait for what will be done again.
            self._thread = threading.Thread(target=job, name="pullstream-ahead", daemon=True)
            try:
                self._thread.start()
            except RuntimeError:
                # No more threads here: then it is done when it is asked for.
                self._thread = None

    def end(self, wake: Callable[[], None]) -> None:
        """Wait for the end of the job, if there is one; `wake` it from what it waits for."""
        if self._thread is not None:
            self._is_over = True
            wake()
            # SIGTERM may cut this short; then it is tried again by whoever cleans up.
            self._thread.join()
            self._thread = None
