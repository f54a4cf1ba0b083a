"""Table of deadlines for many items, with fast access to the earliest.

The broker keeps one table of the leases that it has granted, the SDK one of the leases that it
holds. Both have the same workload: thousands of items get the *same* duration at nearly the same
time, nearly all are removed long before they are due, and some are extended. A heap would keep each
removed item until it is due. Here the items of one duration form one queue. The queue is always in
deadline order, because time does not go back. So setting and removing an item takes constant time.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice
from typing import Generic, TypeVar

K = TypeVar("K")
V = TypeVar("V")


class _Queue(Generic[K, V]):
    """Items of one duration, in the order of their due times.

    A dict keeps this order. But after many items were removed from its front, finding the first
    item means skipping the holes that they left. So `first_due` may be out of date: it is the due
    time of an earlier first item, and is updated only when that time has come.
    """

    __slots__ = ("first_due", "items")

    def __init__(self, first_due: float) -> None:
        self.first_due = first_due
        self.items: dict[K, tuple[float, V]] = {}


class DeadlineTable(Generic[K, V]):
    """Items by key. Each is due a given duration after it was last set. Not thread-safe.

    Times are seconds on one monotonic clock and must not decrease from call to call.
    """

    __slots__ = ("_queues", "_where")

    def __init__(self) -> None:
        self._queues: dict[float, _Queue[K, V]] = {}
        # key -> the items of the queue that contains it.
        self._where: dict[K, dict[K, tuple[float, V]]] = {}

    def __len__(self) -> int:
        return len(self._where)

    def __contains__(self, key: object) -> bool:
        return key in self._where

    def set(self, key: K, value: V, duration: float, now: float) -> None:
        """Make `key` due at `now + duration`, whether it is new or already in the table.

        Args:
            key: The key of the item.
            value: The value to store.
            duration: Seconds from `now` until the item is due.
            now: The current monotonic time, in seconds.
        """
        self.set_all(((key, value),), duration, now)

    def set_all(self, items: Iterable[tuple[K, V]], duration: float, now: float) -> None:
        """Make many items due at the same time.

        Args:
            items: The keys and values of the items.
            duration: Seconds from `now` until the items are due.
            now: The current monotonic time, in seconds.
        """
        due = now + duration
        queue = self._queues.get(duration)
        if queue is None:
            queue = self._queues[duration] = _Queue(due)
        elif not queue.items:
            queue.first_due = due
        queued, where = queue.items, self._where
        for key, value in items:
            if key in where:
                # Remove the item even if it is in the same queue, so that it moves to the end.
                del where[key][key]
            where[key] = queued
            queued[key] = (due, value)

    def get(self, key: K) -> V | None:
        """Return the value of `key`; None if it is not in the table."""
        queued = self._where.get(key)
        return None if queued is None else queued[key][1]

    def due_of(self, key: K) -> float | None:
        """Return the due time of `key`; None if it is not in the table."""
        queued = self._where.get(key)
        return None if queued is None else queued[key][0]

    def pop(self, key: K) -> V | None:
        """Remove `key` and return its value; None if it is not in the table."""
        queued = self._where.pop(key, None)
        return None if queued is None else queued.pop(key)[1]

    def first(self) -> V | None:
        """Return the value of the key that was added first; None if the table is empty.

        Setting a key that is in the table does not add it.
        """
        # A dict keeps the place of a key that is set again. Removed keys at its front are skipped
        # at a million in 2 ms, until the next additions.
        for key, queued in self._where.items():
            return queued[key][1]
        return None

    def values(self) -> list[V]:
        """Return all values, in no particular order."""
        return [queued[key][1] for key, queued in self._where.items()]

    def next_due(self) -> float | None:
        """Return a time not after the earliest due time; None if the table is empty.

        The returned time is earlier only if the item that was due then has been removed. In that
        case `pop_due` at that time returns nothing, and the next call returns a later time.
        """
        # Computed durations are often used for a while only, so drop queues that are empty.
        for duration in [d for d, queue in self._queues.items() if not queue.items]:
            del self._queues[duration]
        return min((queue.first_due for queue in self._queues.values()), default=None)

    def pop_due(self, now: float, most: int | None = None) -> list[tuple[K, V]]:
        """Remove and return the items that are due at or before `now`, earliest first.

        Args:
            now: The current monotonic time, in seconds.
            most: Maximum number of items; None: all. The others are due at the next call.
        """
        due: list[tuple[float, K, V]] = []
        for queue in self._queues.values():
            if queue.first_due > now:
                continue
            for key, (when, value) in islice(queue.items.items(), most):
                queue.first_due = when
                if when > now:
                    break
                due.append((when, key, value))
        due.sort(key=lambda item: item[0])
        due = due[:most]
        for _, key, _ in due:
            self.pop(key)
        return [(key, value) for _, key, value in due]
