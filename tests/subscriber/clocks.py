"""Manual clocks for threads that wait on them."""

from __future__ import annotations

import threading

from pullstream_protocol.clock import ManualClock
from tests.subscriber.streaming.fakes import TIMEOUT


class WatchedClock(ManualClock):
    """A clock that reports when something waits on it."""

    def __init__(self) -> None:
        super().__init__()
        self._waits = threading.Semaphore(0)

    def timeout(self, deadline: float | None) -> float | None:
        timeout = super().timeout(deadline)
        self._waits.release()
        return timeout

    def wait_until_watched(self) -> None:
        """Return when something has asked once more how long to wait."""
        assert self._waits.acquire(timeout=TIMEOUT)


class ImpatientClock(ManualClock):
    """A clock that jumps to the deadline when something waits on it. It records the pauses."""

    def __init__(self) -> None:
        super().__init__()
        self.pauses: list[float] = []

    def timeout(self, deadline: float | None) -> float | None:
        if deadline is not None and deadline > self.monotonic():
            self.pauses.append(deadline - self.monotonic())
            self.advance(self.pauses[-1])
        return super().timeout(deadline)
