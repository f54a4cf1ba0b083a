"""Growing pauses between attempts."""

from __future__ import annotations

import random


class Backoff:
    """Pauses that double from `first` to `longest` seconds, each shortened by up to a half at
    random.

    The randomness keeps many clients that lost the same server from coming back in step.
    """

    def __init__(self, first: float, longest: float) -> None:
        self._first = first
        self._longest = longest
        self._attempts = 0

    def reset(self) -> None:
        """All is well again: the next pause is the first."""
        self._attempts = 0

    def next_pause(self) -> float:
        """Seconds to wait before the next attempt."""
        # 2**63 is beyond any pause; a float has no room for an outage of months.
        pause = min(self._first * 2.0 ** min(self._attempts, 63), self._longest)
        self._attempts += 1
        return pause * random.uniform(0.5, 1.0)
