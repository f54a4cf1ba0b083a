"""Retry schedules of a follower: for failed reads and for failed streams."""

from __future__ import annotations

from collections import deque

from pullstream.runtime.retry_clock import RetryClock

# The shortest and the longest pause between failed reads, in seconds.
_FIRST_PAUSE = 0.1
_LAST_PAUSE = 10.0

# After this many failures within this many seconds, no stream is opened for a while.
MAX_FAILURES = 3
FAILURES_WITHIN = 60.0

# The length of that while, in seconds. The follower polls meanwhile.
POLL_FOR = 60.0


def read_retries(give_up_after: float | None) -> RetryClock:
    """Return the times of retries of failed reads.

    Args:
        give_up_after: Seconds without an answer after which to give up. None: never.
    """
    return RetryClock(_FIRST_PAUSE, _LAST_PAUSE, give_up_after)


class StreamFailures:
    """Counts the failures of streams, and decides when to use long polls instead.

    Attributes:
        count: Failures since the start.
        poll_until: No stream is opened before this time, on the monotonic clock.
    """

    def __init__(self) -> None:
        self.count: int = 0
        self.poll_until: float = 0.0
        self._recent: deque[float] = deque(maxlen=MAX_FAILURES)

    def add(self, now: float) -> None:
        """Count a failure; after MAX_FAILURES within FAILURES_WITHIN seconds, set `poll_until`."""
        self.count += 1
        self._recent.append(now)
        if len(self._recent) == MAX_FAILURES and now - self._recent[0] <= FAILURES_WITHIN:
            self._recent.clear()
            self.poll_until = now + POLL_FOR
