"""Numbers by owner, and the lowest of them, also with thousands of owners."""

from __future__ import annotations

import heapq

# Up to this many entries of the heap may be out of date.
_FEW = 64


class LowestNumber:
    """The lowest of the numbers of all owners."""

    def __init__(self) -> None:
        self._numbers: dict[str, float] = {}
        # Has entries of earlier numbers until they are the lowest or are too many.
        self._heap: list[tuple[float, str]] = []

    def __bool__(self) -> bool:
        return bool(self._numbers)

    def __contains__(self, owner: str) -> bool:
        return owner in self._numbers

    def put(self, owner: str, number: float | None) -> None:
        """Set the number of an owner; None: it has no number any more."""
        self._numbers.pop(owner, None)
        if number is not None:
            self._numbers[owner] = number
            heapq.heappush(self._heap, (number, owner))
        if len(self._heap) > 2 * len(self._numbers) + _FEW:
            self._heap = [(each, name) for name, each in self._numbers.items()]
            heapq.heapify(self._heap)

    def lowest(self) -> float | None:
        """Return the lowest number; None if there is none."""
        while self._heap and self._numbers.get(self._heap[0][1]) != self._heap[0][0]:
            heapq.heappop(self._heap)
        return self._heap[0][0] if self._heap else None
