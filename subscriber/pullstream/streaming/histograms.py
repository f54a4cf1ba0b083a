"""Histograms of how long messages take; old samples lose weight."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence

from pullstream.flow_control import MAX_EXTENSION, MIN_EXTENSION

# When this many samples are counted, the weight of each is halved.
_DECAY_AFTER = 10_000

# Each step of the latencies is 10 % wider than the previous one; the first one ends at 10 µs, the
# last one after half an hour.
_SHORTEST = 1e-5
_STEP = 1.1
_STEPS = 200


class Histogram:
    """Counts samples in steps. Not thread-safe.

    Args:
        ends: The end of each step, in ascending order. A sample beyond the last end belongs to the
            last step.
        values: The value that stands for the samples of each step.
    """

    def __init__(self, ends: Sequence[float], values: Sequence[float]) -> None:
        # The last step has no end.
        self._ends = list(ends[:-1])
        self._first_end = ends[0]
        self._values = values
        self._counts = [0] * len(values)
        self._total = 0

    def add_samples(self, sample: float, times: int = 1) -> None:
        """Count a sample `times` times."""
        # Nearly all handling times are in the first step.
        step = bisect_left(self._ends, sample) if sample > self._first_end else 0
        self._counts[step] += times
        self._total += times
        if self._total >= _DECAY_AFTER:
            self._counts = [count // 2 for count in self._counts]
            self._total = sum(self._counts)

    def percentile(self, part: float) -> float:
        """Return the value that `part` of the samples do not exceed; 0 without samples."""
        left = self._total * part
        for value, count in zip(self._values, self._counts, strict=True):
            left -= count
            if count and left <= 0:
                return value
        return 0.0


def handling_times() -> Histogram:
    """Return a histogram in whole seconds within the bounds of an ack deadline, 10 to 600.

    Samples are rounded up: a lease of 11 s is too short for a callback of 11.2 s.
    """
    seconds = [float(second) for second in range(MIN_EXTENSION, MAX_EXTENSION + 1)]
    return Histogram(seconds, seconds)


def latencies() -> Histogram:
    """Return a histogram of seconds in steps of 10 %, from 10 µs to half an hour."""
    ends = [_SHORTEST * _STEP**step for step in range(_STEPS)]
    # The middle of each step.
    return Histogram(ends, [end / _STEP**0.5 for end in ends])
