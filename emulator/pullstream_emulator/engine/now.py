"""The present time on two clocks."""

from __future__ import annotations

from typing import NamedTuple


class Now(NamedTuple):
    """The present time on both clocks.

    Attributes:
        wall: Seconds since the epoch, for times that users see and set.
        monotonic: Seconds on a clock that never goes back, for deadlines and durations.
    """

    wall: float
    monotonic: float

    def due(self, wall: float) -> float:
        """Convert a time on the wall clock to the monotonic clock."""
        return self.monotonic + (wall - self.wall)
