"""Keeps the leases of what is acknowledged, until the server has answered."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Protocol

# An acknowledgement is worth something only while the lease lasts, which nobody else extends any
# more. So if it is not answered after the first of these, be it that it hangs, is tried again, or
# cannot be sent, its lease is extended by the second, and again whenever a third of that has
# passed. In seconds.
KEEP_AFTER = 1.0
KEEP_FOR = 60


class Holder(Protocol):
    """Something with acknowledgements that the server was asked for."""

    @property
    def ack_ids(self) -> Sequence[str]: ...


class Keeper:
    """Knows the acknowledgements without an answer, and when to extend their leases.

    Not thread-safe. Times are seconds on one monotonic clock.

    Args:
        seconds: by which a lease is extended at a time.
    """

    def __init__(self, seconds: int) -> None:
        self.seconds = seconds
        # By identity; with the time when theirs are to be extended.
        self._holders: dict[int, tuple[Holder, float]] = {}
        # Of those that cannot be sent: how many are kept, when the others are to be, and when all
        # are to be again.
        self._kept = 0
        self._keep_new_at = math.inf
        self._keep_all_at = math.inf

    def begin(self, holder: Holder, now: float) -> None:
        """The server is asked, for the first time or again."""
        self._holders.setdefault(id(holder), (holder, now + KEEP_AFTER))

    def joined(self, holder: Holder, now: float) -> None:
        """More came to what it holds."""
        _, at = self._holders.get(id(holder), (holder, math.inf))
        self._holders[id(holder)] = holder, min(at, now + KEEP_AFTER)

    def end(self, holder: Holder) -> None:
        """The server is asked no more."""
        self._holders.pop(id(holder), None)

    def due(self) -> float:
        """When to ask `to_keep`; infinite if there is no need to."""
        return min((self._keep_new_at, *(at for _, at in self._holders.values())))

    def to_keep(self, now: float, unsent: Sequence[str]) -> Iterator[Sequence[str]]:
        """Ids whose leases are to be extended now.

        Args:
            unsent: what waits and cannot be sent. From one time to the next it only grows, until it
                is empty.
        """
        again = now + self.seconds / 3
        for key, (holder, at) in self._holders.items():
            if at <= now:
                self._holders[key] = holder, again
                yield holder.ack_ids
        if not unsent:
            self._kept, self._keep_new_at, self._keep_all_at = 0, math.inf, math.inf
        elif self._keep_new_at == math.inf:
            self._keep_new_at = self._keep_all_at = now + KEEP_AFTER
        elif self._keep_new_at <= now:
            self._keep_new_at = now + KEEP_AFTER
            if self._keep_all_at <= now:
                self._kept, self._keep_all_at = 0, again
            if self._kept < len(unsent):
                yield unsent[self._kept :]
            self._kept = len(unsent)

    def clear(self) -> None:
        """Nothing is to be kept any more."""
        self._holders.clear()
        self._keep_new_at = math.inf
