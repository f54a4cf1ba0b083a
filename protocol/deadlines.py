"""Deadlines of many items, the earliest always at hand.

The broker keeps one table of the leases it granted, the SDK one of the leases it holds. Both see
the same shape of work: thousands of items get the *same* duration at nearly the same moment, nearly
all are removed long before they are due, some are extended. A heap would keep every removed item
until its time came; here items of one duration form one queue, which is in deadline order by itself
because time does not go back, so that setting and removing cost the same however many there are.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Generic, TypeVar

K = TypeVar("K")
V = TypeVar("V")


class _Queue(Generic[K, V]):
    """Items of one duration, in the order in which they fall due, each with its due time.

    A plain dict keeps that order, but finding its first item after many were removed from its front
    means passing over the holes they left. So `first_due` is the due time of what once was the
    first item: it is looked for again only when that moment has come.
    """

    __slots__ = ("first_due", "items")

    def __init__(self, first_due: float) -> None:
        self.first_due = first_due
        self.items: dict[K, tuple[float, V]] = {}


class DeadlineTable(Generic[K, V]):
    """Items by key, each due a given duration after it was last set. Not thread-safe.

    Times are seconds on one monotonic clock and must not decrease from call to call.
    """

    __slots__ = ("_queues", "_where")

    def __init__(self) -> None:
        self._queues: dict[float, _Queue[K, V]] = {}
        # key -> the items of the queue that it stands in.
        self._where: dict[K, dict[K, tuple[float, V]]] = {}

    def __len__(self) -> int:
        return len(self._where)

    def __contains__(self, key: object) -> bool:
        return key in self._where

    def set(self, key: K, value: V, duration: float, now: float) -> None:
        """Make `key` due at `now + duration`, whether it is new or already in the table."""
        self.set_all(((key, value),), duration, now)

    def set_all(self, items: Iterable[tuple[K, V]], duration: float, now: float) -> None:
        """Make many items due at the same moment."""
        due = now + duration
        queue = self._queues.get(duration)
        if queue is None:
            queue = self._queues[duration] = _Queue(due)
        elif not queue.items:
            queue.first_due = due
        queued, where = queue.items, self._where
        for key, value in items:
            if key in where:
                # Out of its old place, also if that is in the same queue: it goes to the end.
                del where[key][key]
            where[key] = queued
            queued[key] = (due, value)

    def get(self, key: K) -> V | None:
        queued = self._where.get(key)
        return None if queued is None else queued[key][1]

    def pop(self, key: K) -> V | None:
        """Remove `key` and return its value; None if it is not in the table."""
        queued = self._where.pop(key, None)
        return None if queued is None else queued.pop(key)[1]

    def values(self) -> list[V]:
        """Every value, in no particular order."""
        return [queued[key][1] for key, queued in self._where.items()]

    def next_due(self) -> float | None:
        """A moment not after the earliest due time; None when the table is empty.

        It is before that time only if the item that was due then has been removed. `pop_due` at
        that moment returns nothing, and the next answer is a later one.
        """
        # Durations come and go with what they are computed from; their queues need not stay.
        for duration in [d for d, queue in self._queues.items() if not queue.items]:
            del self._queues[duration]
        return min((queue.first_due for queue in self._queues.values()), default=None)

    def pop_due(self, now: float) -> list[tuple[K, V]]:
        """Remove and return every item due at or before `now`, earliest first."""
        due: list[tuple[float, K, V]] = []
        for queue in self._queues.values():
            if queue.first_due > now:
                continue
            for key, (when, value) in queue.items.items():
                queue.first_due = when
                if when > now:
                    break
                due.append((when, key, value))
        due.sort(key=lambda item: item[0])
        for _, key, _ in due:
            self.pop(key)
        return [(key, value) for _, key, value in due]
