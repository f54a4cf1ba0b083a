"""Manual clocks for threads that wait on them."""

from __future__ import annotations

import threading
from collections.abc import Collection

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


class PacedClock(ManualClock):
    """A clock that knows which threads wait for it, and until when.

    A test that advances it only while all threads wait needs the same time on it on each machine.
    """

    def __init__(self, start: float = 1_700_000_000.0) -> None:
        super().__init__(start)
        # Threads by number: when they began to wait, and until when.
        self._waits: dict[int, tuple[float, float | None]] = {}

    def timeout(self, deadline: float | None) -> float | None:
        now = self.monotonic()
        timeout = super().timeout(deadline)
        self._waits[threading.get_ident()] = (-1.0 if timeout == 0.0 else now, deadline)
        return timeout

    def is_awaited_by(self, threads: Collection[int]) -> bool:
        """Return whether all these threads wait, and have looked since the clock last moved."""
        now = self.monotonic()
        return all(self._waits.get(thread, (-1.0, None))[0] == now for thread in threads)

    def advance_towards(self, deadlines_of: Collection[int], longest: float) -> None:
        """Advance to the next deadline of these threads, or by `longest` seconds if it is later."""
        now = self.monotonic()
        deadlines = [self._waits[thread][1] for thread in deadlines_of]
        self.advance(min([longest, *(due - now for due in deadlines if due is not None)]))
