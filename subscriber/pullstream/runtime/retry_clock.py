"""Times of attempts: growing pauses, and when to give up."""

from __future__ import annotations

import random


class Backoff:
    """Pauses that double from `first` to `longest`, each shortened at random by up to a half.

    The randomness prevents many clients that lost the same server from reconnecting at the same
    moments.

    Args:
        first: the first pause, in seconds.
        longest: the longest pause, in seconds.
    """

    def __init__(self, first: float, longest: float) -> None:
        self._first = first
        self._longest = longest
        self._attempts = 0

    def reset(self) -> None:
        """Start again with the first pause."""
        self._attempts = 0

    def next_pause(self) -> float:
        """Return the seconds to wait before the next attempt."""
        # 2**63 is longer than any pause. Without this limit the float overflows in an outage of
        # months.
        pause = min(self._first * 2.0 ** min(self._attempts, 63), self._longest)
        self._attempts += 1
        return pause * random.uniform(0.5, 1.0)


class RetryClock:
    """Computes the time of the next attempt after failures in a row, or that it is time to give up.

    Times are seconds on one monotonic clock. Not thread-safe.

    Args:
        first: the first pause, in seconds; see Backoff.
        longest: the longest pause, in seconds.
        give_up_after: seconds of failures after which to give up. The last attempt is made at this
            time. None: never.
        failing_since: the failures count from this time. None: from the first one.
    """

    def __init__(
        self,
        first: float,
        longest: float,
        give_up_after: float | None = None,
        *,
        failing_since: float | None = None,
    ) -> None:
        self._backoff = Backoff(first, longest)
        self._give_up_after = give_up_after
        self._failing_since = failing_since

    def succeeded(self) -> None:
        """Record a success. The next failure is the first one."""
        self._failing_since = None
        self._backoff.reset()

    def failed(self, now: float) -> float | None:
        """Record a failure; return the time of the next attempt, or None to give up."""
        if self._failing_since is None:
            self._failing_since = now
        due = now + self._backoff.next_pause()
        if self._give_up_after is None:
            return due
        last = self._failing_since + self._give_up_after
        return min(due, last) if now < last else None
