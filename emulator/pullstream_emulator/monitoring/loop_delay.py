"""Measurement of the event loop's delay: how late the loop runs a timer."""

from __future__ import annotations

import asyncio
from bisect import bisect_left

# Seconds between two measurements.
INTERVAL = 0.5

# Upper bounds of the histogram, in seconds.
BOUNDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5)


class LoopDelay:
    """A histogram of delays. Belongs to one event loop.

    A long call delays all other calls by the same time. So clients wait for this delay in addition
    to their own call.

    Attributes:
        counts: Number of measurements in each interval between two BOUNDS; the last one has no
            upper bound.
        total: Sum of all delays, in seconds.
    """

    def __init__(self) -> None:
        self.counts: list[int] = [0] * (len(BOUNDS) + 1)
        self.total: float = 0.0
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Begin to measure on the running event loop."""
        self._loop = asyncio.get_running_loop()
        self._schedule()

    def stop(self) -> None:
        """End the measurement. Idempotent."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def record(self, delay: float) -> None:
        """Add one delay in seconds."""
        self.counts[bisect_left(BOUNDS, delay)] += 1
        self.total += delay

    def _schedule(self) -> None:
        self._due = self._loop.time() + INTERVAL
        self._timer = self._loop.call_at(self._due, self._measure)

    def _measure(self) -> None:
        self.record(max(self._loop.time() - self._due, 0.0))
        self._schedule()
