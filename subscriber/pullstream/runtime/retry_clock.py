"""Times of attempts: growing pauses, and when to give up."""

from __future__ import annotations

import math
import random


class Backoff:
    """Pauses that grow from `first` to `longest`, each shortened at random by up to a half.

    The randomness prevents many clients that lost the same server from reconnecting at the same
    moments.

    Args:
        first: The first pause, in seconds.
        longest: The longest pause, in seconds.
        factor: Each pause is this many times the one before it; at least 1.
    """

    def __init__(self, first: float, longest: float, factor: float = 2.0) -> None:
        self._first = first
        self._longest = longest
        self._factor = factor
        self._next = first

    def reset(self) -> None:
        """Start again with the first pause."""
        self._next = self._first

    def next_pause(self) -> float:
        """Return the seconds to wait before the next attempt."""
        pause = min(self._next, self._longest)
        self._next = pause * self._factor
        return pause * random.uniform(0.5, 1.0)


class RetryClock:
    """Computes the time of the next attempt after failures in a row, or that it is time to give up.

    Times are seconds on one monotonic clock. Not thread-safe.

    Args:
        first: The first pause, in seconds; see Backoff.
        longest: The longest pause, in seconds.
        give_up_after: Seconds of failures after which to give up. The last attempt is made at this
            time. None: never.
        factor: Growth of the pauses; see Backoff.
    """

    def __init__(
        self,
        first: float,
        longest: float,
        give_up_after: float | None = None,
        *,
        factor: float = 2.0,
    ) -> None:
        self._backoff = Backoff(first, longest, factor)
        self._give_up_after = give_up_after
        self._failing_since: float | None = None

    @property
    def gives_up_at(self) -> float:
        """The time of the last attempt after a failure. `math.inf`: there is no limit."""
        if self._failing_since is None or self._give_up_after is None:
            return math.inf
        return self._failing_since + self._give_up_after

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
