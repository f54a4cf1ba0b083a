"""A set of keys in ascending order, with fast access to both ends."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from typing import Any, Generic, TypeVar

K = TypeVar("K", bound=tuple[Any, ...])

# The list is compacted when this many keys were removed from its front, and they are half of it.
_COMPACT_AFTER = 64


class SortedKeys(Generic[K]):
    """Distinct keys in ascending order. Not thread-safe.

    Adding at the end and removing at either end takes constant time. Elsewhere a binary search
    finds the place, and the list moves its later entries, which are 8 bytes each.
    """

    __slots__ = ("_keys", "_start")

    def __init__(self) -> None:
        self._keys: list[K] = []
        # The entries before this index are removed.
        self._start = 0

    def __len__(self) -> int:
        return len(self._keys) - self._start

    @property
    def first(self) -> K | None:
        """The smallest key; None if there is no key."""
        return self._keys[self._start] if len(self) else None

    @property
    def last(self) -> K | None:
        """The largest key; None if there is no key."""
        return self._keys[-1] if len(self) else None

    def add(self, key: K) -> None:
        """Add a key, if it is not there."""
        keys = self._keys
        if not len(self) or keys[-1] < key:
            keys.append(key)
            return
        index = bisect_left(keys, key, self._start)
        if keys[index] != key:
            keys.insert(index, key)

    def discard(self, key: K) -> None:
        """Remove a key, if it is there."""
        keys, start = self._keys, self._start
        if not len(self):
            return
        index = start if keys[start] == key else bisect_left(keys, key, start)
        if index == len(keys) or keys[index] != key:
            return
        if index > start:
            del keys[index]
            return
        self._start = start + 1
        if self._start >= _COMPACT_AFTER and self._start * 2 >= len(keys):
            del keys[: self._start]
            self._start = 0

    def between(self, low: K | None, high: K | None) -> list[K]:
        """Return the keys that are larger than `low` and smaller than `high`; None: no bound."""
        keys, start = self._keys, self._start
        begin = start if low is None else bisect_right(keys, low, start)
        end = len(keys) if high is None else bisect_left(keys, high, begin)
        return keys[begin:end]

    def head(self, count: int) -> list[K]:
        """Return the `count` smallest keys."""
        return self._keys[self._start : self._start + count]

    def clear(self) -> None:
        """Remove all keys."""
        self._keys.clear()
        self._start = 0
