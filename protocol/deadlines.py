"""Deadlines of many items, the earliest always at hand.

The broker keeps one table of the leases it granted, the SDK one of the leases it holds. Both see
the same shape of work: thousands of items get the *same* duration at nearly the same moment, nearly
all are removed long before they are due, some are extended. A heap would keep every removed item
until its time came; here items of one duration form one queue, which is in deadline order by itself
because time does not go back, so that every operation costs the same however many items there are.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable
from typing import Generic, TypeVar

K = TypeVar("K")
V = TypeVar("V")


class DeadlineTable(Generic[K, V]):
    """Items by key, each due a given duration after it was last set. Not thread-safe.

    Times are seconds on one monotonic clock and must not decrease from call to call.
    """

    __slots__ = ("_durations", "_queues")

    def __init__(self) -> None:
        # duration -> items in the order in which they fall due, each with its due time.
        self._queues: dict[float, OrderedDict[K, tuple[float, V]]] = {}
        self._durations: dict[K, float] = {}

    def __len__(self) -> int:
        return len(self._durations)

    def __contains__(self, key: object) -> bool:
        return key in self._durations

    def set(self, key: K, value: V, duration: float, now: float) -> None:
        """Make `key` due at `now + duration`, whether it is new or already in the table."""
        self.pop(key)
        queue = self._queues.get(duration)
        if queue is None:
            queue = self._queues[duration] = OrderedDict()
        queue[key] = (now + duration, value)
        self._durations[key] = duration

    def set_all(self, items: Iterable[tuple[K, V]], duration: float, now: float) -> None:
        """Make many items due at the same moment."""
        for key, value in items:
            self.set(key, value, duration, now)

    def get(self, key: K) -> V | None:
        duration = self._durations.get(key)
        return None if duration is None else self._queues[duration][key][1]

    def pop(self, key: K) -> V | None:
        """Remove `key` and return its value; None if it is not in the table."""
        duration = self._durations.pop(key, None)
        if duration is None:
            return None
        queue = self._queues[duration]
        value = queue.pop(key)[1]
        if not queue:
            # Durations follow a percentile and come and go; an empty queue is not kept.
            del self._queues[duration]
        return value

    def values(self) -> list[V]:
        """Every value, in no particular order."""
        return [value for queue in self._queues.values() for _, value in queue.values()]

    def next_due(self) -> float | None:
        """The earliest due time, or None when the table is empty."""
        return min((next(iter(queue.values()))[0] for queue in self._queues.values()), default=None)

    def pop_due(self, now: float) -> list[tuple[K, V]]:
        """Remove and return every item due at or before `now`, earliest first."""
        due: list[tuple[float, K, V]] = []
        for queue in self._queues.values():
            for key, (when, value) in queue.items():
                if when > now:
                    break
                due.append((when, key, value))
        due.sort(key=lambda item: item[0])
        for _, key, _ in due:
            self.pop(key)
        return [(key, value) for _, key, value in due]
