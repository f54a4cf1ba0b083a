"""The times at which the engine has timed work, and work in slices between other calls."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Protocol

from pullstream_protocol.due_queue import DueQueue

from .now import Now

# Most messages in one slice, about 3 ms of work.
SLICE = 1000

# Slices that run at once when work is added. So the work on a small backlog is done when its call
# returns.
AT_ONCE = 3


class Timed(Protocol):
    """An object with timed work."""

    def next_due(self, now: Now) -> float | None:
        """Return the monotonic time of the next work. It may be too early, but never too late."""


class TimedTask(Timed):
    """Timed work of code that is built on the engine."""

    def advance(self, now: Now) -> None:
        """Do the work that is due."""
        raise NotImplementedError


class Timetable(DueQueue[Timed]):
    """The objects of an engine that have timed work.

    The caller of `pop_due` must watch each item again after its work.

    Args:
        on_due: Called with the due time of a new entry that is the earliest.
    """

    def __init__(self, on_due: Callable[[float], None]) -> None:
        super().__init__()
        self._on_due = on_due

    def watch(self, item: Timed, now: Now) -> None:
        """Enter the item's next due time, unless an earlier time is entered."""
        due = item.next_due(now)
        if due is not None:
            self.announce(item, due)

    def announce(self, item: Timed, due: float) -> None:
        """Enter a due time of an item, unless an earlier time is entered."""
        current = self._current.get(item)
        if current is None or due < current[0]:
            self.schedule(item, due)
            if self._entries[0][0] == due:
                self._on_due(due)


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
