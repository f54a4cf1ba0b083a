"""How long messages took, finely enough to be looked at."""

from __future__ import annotations

import math

from subscriber.statistics import Latency

# Each step is a tenth wider than the one before; the first ends at a hundredth of a millisecond.
_SHORTEST = 1e-5
_LOG_STEP = math.log(1.1)
_STEPS = 200

# As in HandlingTimes: the past counts less and less.
_DECAY_AFTER = 10_000


class Latencies:
    """A histogram of seconds with steps of a tenth, from 10 µs to half an hour. Not thread-safe."""

    def __init__(self) -> None:
        self._counts = [0] * _STEPS
        self._total = 0

    def add(self, seconds: float, times: int = 1) -> None:
        step = math.ceil(math.log(seconds / _SHORTEST) / _LOG_STEP) if seconds > _SHORTEST else 0
        self._counts[min(step, _STEPS - 1)] += times
        self._total += times
        if self._total >= _DECAY_AFTER:
            self._counts = [count // 2 for count in self._counts]
            self._total = sum(self._counts)

    def snapshot(self) -> Latency:
        return Latency(self._percentile(0.5), self._percentile(0.9), self._percentile(0.99))

    def _percentile(self, part: float) -> float:
        left = self._total * part
        for step, count in enumerate(self._counts):
            left -= count
            if count and left <= 0:
                # The middle of the step.
                return _SHORTEST * math.exp((step - 0.5) * _LOG_STEP)
        return 0.0
