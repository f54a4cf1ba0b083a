"""Work on a big backlog in slices, so that other calls run in between."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from itertools import islice

from .now import Now
from .timetable import TimedTask, Timetable

# Most messages in one slice, about 3 ms of work.
SLICE = 1000

# Slices that run at once when work is added. So the work on a small backlog is done when its call
# returns.
AT_ONCE = 3


class SlicedWork(TimedTask):
    """The remaining work of calls whose effect is complete. Owned by the engine's owner.

    A call that removes or replaces a whole backlog marks this in a time that does not depend on
    the backlog. The remaining work is invisible to callers, such as the release of memory.

    Args:
        timetable: Gets the time of the next slice.

    Attributes:
        size: Most messages in one slice.
        at_once: Slices that run at once when work is added.
    """

    def __init__(self, timetable: Timetable) -> None:
        self.size = SLICE
        self.at_once = AT_ONCE
        self._timetable = timetable
        self._works: deque[Iterator[None]] = deque()

    def add(self, work: Iterator[None], now: float) -> None:
        """Begin some work.

        Args:
            work: Does one slice of the work for each value that it yields.
            now: The present time, on the monotonic clock.
        """
        if sum(1 for _ in islice(work, self.at_once)) == self.at_once:
            self._works.append(work)
            self._timetable.announce(self, now)

    def next_due(self, now: Now) -> float | None:
        """Return the present time while there is work."""
        return now.monotonic if self._works else None

    def advance(self, now: Now) -> None:
        """Do one slice of the oldest work, and let the other works come next."""
        if self._works:
            work = self._works.popleft()
            for _ in work:
                self._works.append(work)
                return

    def finish(self) -> None:
        """Do all work that is left."""
        while self._works:
            for _ in self._works.popleft():
                pass
