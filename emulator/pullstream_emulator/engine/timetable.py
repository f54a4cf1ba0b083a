"""The timed work of an engine, by due time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from pullstream_protocol.due_queue import DueQueue

from .now import Now


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
