"""One moment on both clocks: the calendar's, and the one that never goes back."""

from __future__ import annotations

from typing import NamedTuple


class Moment(NamedTuple):
    """Deadlines and durations are counted on `monotonic`; what users see and set, on `wall`."""

    wall: float
    monotonic: float

    def due(self, wall: float) -> float:
        """When a moment of the calendar comes, on the monotonic clock."""
        return self.monotonic + (wall - self.wall)
