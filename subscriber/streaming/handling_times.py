"""How long callbacks take, and so how long a lease should be."""

from __future__ import annotations

from subscriber.flow_control import MAX_EXTENSION, MIN_EXTENSION

PERCENTILE = 0.99

# When this many samples have come together each counts half from then on: what callbacks did an
# hour ago should not decide for ever.
_DECAY_AFTER = 10_000


class HandlingTimes:
    """A histogram of whole seconds, 10 to 600 (the bounds of an ack deadline). Not thread-safe."""

    def __init__(self) -> None:
        self._counts = [0] * (MAX_EXTENSION + 1)
        self._total = 0

    def add(self, seconds: float, times: int = 1) -> None:
        """Count messages that took `seconds` from receipt to acknowledgement."""
        # Rounded up: a lease of 11 s is too short for a callback of 11.2 s.
        bucket = min(max(-int(-seconds // 1), MIN_EXTENSION), MAX_EXTENSION)
        self._counts[bucket] += times
        self._total += times
        if self._total >= _DECAY_AFTER:
            self._counts = [count // 2 for count in self._counts]
            self._total = sum(self._counts)

    def percentile(self) -> int:
        """Seconds within which 99 of 100 recent messages were handled; 10 before the first."""
        above = int(self._total * (1 - PERCENTILE))
        for seconds in range(MAX_EXTENSION, MIN_EXTENSION, -1):
            above -= self._counts[seconds]
            if above < 0:
                return seconds
        return MIN_EXTENSION
