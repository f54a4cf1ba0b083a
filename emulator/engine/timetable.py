"""Who has something to do at which moment."""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable, Iterator
from typing import Protocol, TypeAlias

from .moment import Moment

# So many forgotten entries are nothing to care about.
_FEW = 64


class Timed(Protocol):
    """Something that changes as time passes."""

    def next_due(self, now: Moment) -> float | None:
        """The earliest moment at which there may be something to do; it may be early, not late."""


class TimedTask(Timed):
    """What is built on the engine and has something of its own to do as time passes."""

    def advance(self, now: Moment) -> None:
        """Do what is due by now."""
        raise NotImplementedError


# A moment, a number that tells equal moments apart, and whose it is.
_Entry: TypeAlias = tuple[float, int, list[Timed]]


class Timetable:
    """The next moment of each of many things, earliest first."""

    def __init__(self, on_due: Callable[[float], None]) -> None:
        self.on_due = on_due
        self._numbers = itertools.count()
        # A heap. An entry whose list is empty was replaced by an earlier one, or forgotten.
        self._entries: list[_Entry] = []
        self._current: dict[Timed, _Entry] = {}

    def __len__(self) -> int:
        return len(self._entries)

    def next_due(self) -> float | None:
        return self._entries[0][0] if self._entries else None

    def watch(self, item: Timed, now: Moment) -> None:
        """Announce the item's next moment, unless an earlier one is announced."""
        due = item.next_due(now)
        current = self._current.get(item)
        if due is None or (current is not None and current[0] <= due):
            return
        self.forget(item)
        entry = self._current[item] = (due, next(self._numbers), [item])
        heapq.heappush(self._entries, entry)
        if self._entries[0][0] == due:
            self.on_due(due)

    def forget(self, item: Timed) -> None:
        entry = self._current.pop(item, None)
        if entry is not None:
            entry[2].clear()
            if len(self._entries) > 2 * len(self._current) + _FEW:
                # Moments far ahead would stay for as long.
                self._entries = list(self._current.values())
                heapq.heapify(self._entries)

    def clear(self) -> None:
        self._entries.clear()
        self._current.clear()

    def due(self, now: Moment) -> Iterator[Timed]:
        """Each item whose moment has come; watch it again when it has done its work."""
        while self._entries and self._entries[0][0] <= now.monotonic:
            _, _, owner = heapq.heappop(self._entries)
            if owner:
                del self._current[owner[0]]
                yield owner[0]
