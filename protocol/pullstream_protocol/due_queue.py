"""Due queues: items by the time at which they have work to do."""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Iterator
from typing import Any, Generic, TypeVar

T = TypeVar("T")

# Up to this many forgotten entries are left in the heap.
_FEW = 64


class DueQueue(Generic[T]):
    """Items by due time, each with one due time. Any item can be removed. Not thread-safe.

    Times are seconds on one monotonic clock. `len` counts forgotten entries until they are removed.
    """

    def __init__(self) -> None:
        self._numbers = itertools.count()
        # A heap of due times, of numbers that order equal times, and of owners. An entry whose
        # list is empty was replaced or forgotten.
        self._entries: list[tuple[float, int, list[T]]] = []
        self._current: dict[T, tuple[float, int, list[T]]] = {}

    def __len__(self) -> int:
        return len(self._entries)

    def next_due(self) -> float | None:
        """Return the earliest due time. It may be too early, but never too late."""
        return self._entries[0][0] if self._entries else None

    def due_of(self, item: T) -> float | None:
        """Return the due time of an item; None if the item is not in the queue."""
        current = self._current.get(item)
        return None if current is None else current[0]

    def schedule(self, item: T, due: float) -> None:
        """Set the due time of an item. It replaces the time that was set before."""
        self.forget(item)
        entry = self._current[item] = (due, next(self._numbers), [item])
        heapq.heappush(self._entries, entry)

    def forget(self, item: T) -> None:
        """Remove an item, if it is in the queue."""
        entry = self._current.pop(item, None)
        if entry is not None:
            entry[2].clear()
            if len(self._entries) > 2 * len(self._current) + _FEW:
                # Forgotten entries with distant due times would stay in the heap until then.
                self._entries = list(self._current.values())
                heapq.heapify(self._entries)

    def clear(self) -> None:
        """Remove all items and all forgotten entries."""
        self._entries.clear()
        self._current.clear()

    def items(self) -> list[T]:
        """Return every item, in no particular order."""
        return list(self._current)

    def take_apart(self) -> tuple[list[Any], dict[Any, Any]]:
        """Remove all items. Return their former containers, whose release takes a while."""
        remains = self._entries, self._current
        self._entries, self._current = [], {}
        return remains

    def pop_due(self, now: float) -> Iterator[T]:
        """Remove and yield each item that is due, earliest first.

        This includes items that the caller schedules meanwhile, if they are due.
        """
        while self._entries and self._entries[0][0] <= now:
            _, _, owner = heapq.heappop(self._entries)
            if owner:
                del self._current[owner[0]]
                yield owner[0]
