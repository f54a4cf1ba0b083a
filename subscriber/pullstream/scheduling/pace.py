"""PaceEstimate: how long the callbacks of a pool take."""

from __future__ import annotations

# Seconds. Callbacks that take less than this on average are fast: one worker handles them as
# quickly as several, which could only take turns.
FAST_CALLBACK = 50e-6

# Seconds at which the average begins. A few dozen short responses prove that callbacks are fast; a
# single slow one proves that they are not. See `learn`.
_UNPROVEN = 1e-3
_WEIGHT = 0.1


class PaceEstimate:
    """The average time of a callback. Any thread may call; races are harmless.

    Attributes:
        average: The average in seconds.
    """

    __slots__ = ("_last", "average")

    def __init__(self) -> None:
        self.average: float = _UNPROVEN
        # The last measurement.
        self._last = _UNPROVEN

    @property
    def is_fast(self) -> bool:
        """Whether the callbacks have proved to be fast."""
        return self.average < FAST_CALLBACK

    def learn(self, seconds: float, callbacks: int) -> None:
        """Update the average.

        With a hundred subscriptions in a process, one wait for the interpreter in the middle of a
        measurement makes all its callbacks look slow. Two such waits in a row are rare. So a
        measurement of several callbacks counts as the lower one of the last two.

        Args:
            seconds: Time that the callbacks took together.
            callbacks: Number of callbacks.
        """
        last, self._last = self._last, seconds / callbacks
        pace = self._last if callbacks == 1 else min(last, self._last)
        self.average += (pace - self.average) * _WEIGHT

    def reset(self) -> None:
        """Forget that the callbacks were fast."""
        self.average = _UNPROVEN
