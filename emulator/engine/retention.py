"""When the unfinished messages of a subscription have become too old to keep."""

from __future__ import annotations

import math

from .moment import Moment
from .record import Record

# Least time between two sweeps, in seconds: each looks at every key.
SWEEP_INTERVAL = 1.0


class Retention:
    """The age of one subscription's unfinished messages.

    It knows a lower bound of their publish times. A sweep, which drops what waits and is too old,
    finds it anew. What is leased at that moment is left alone, and dropped if it comes back.
    """

    def __init__(self) -> None:
        self._oldest_ms = math.inf
        self._cutoff_ms = -math.inf
        self._next_sweep = -math.inf

    def add(self, publish_ms: int) -> bool:
        """A message is unfinished; returns whether it is the first or the oldest."""
        is_oldest = publish_ms < self._oldest_ms
        if is_oldest:
            self._oldest_ms = publish_ms
        return is_oldest

    def is_too_old(self, record: Record) -> bool:
        return record.publish_ms <= self._cutoff_ms

    def next_due(self, seconds: float, now: Moment) -> float | None:
        """When to sweep next, if messages are kept for so many seconds."""
        if self._oldest_ms == math.inf:
            return None
        return max(now.due(self._oldest_ms / 1000 + seconds), self._next_sweep)

    def cutoff_ms(self, seconds: float, now: Moment) -> float | None:
        """What was published by then is to be dropped now; None if it is not yet time to sweep."""
        due = self.next_due(seconds, now)
        return None if due is None or due > now.monotonic else (now.wall - seconds) * 1000

    def swept(self, cutoff_ms: float, oldest_ms: float, now: Moment) -> None:
        """A sweep has dropped what was too old; `oldest_ms` is the publish time of what is left."""
        self._cutoff_ms = cutoff_ms
        self._oldest_ms = oldest_ms
        self._next_sweep = now.monotonic + SWEEP_INTERVAL
