"""Keeps the leases of acknowledged messages until the server has answered."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Protocol

# An acknowledgement is useful only while the lease lasts, and the leaser no longer extends it. If
# an acknowledgement has no answer after KEEP_AFTER seconds (it hangs, is retried, or cannot be
# sent), its lease is extended by KEEP_FOR seconds, and again whenever a third of that time has
# passed.
KEEP_AFTER = 1.0
KEEP_FOR = 60


class PendingAcks(Protocol):
    """A group of acknowledgements that was sent to the server."""

    @property
    def ack_ids(self) -> Sequence[str]:
        """The deliveries whose leases are kept until the server answers."""


class AckLeaseKeepalive:
    """Tracks acknowledgements without an answer, and when to extend their leases.

    Not thread-safe. Times are seconds on one monotonic clock.

    Args:
        seconds: Length of each lease extension. 0: no lease is ever due for extension.
    """

    def __init__(self, seconds: int) -> None:
        self.seconds = seconds
        self._keep_after = KEEP_AFTER if seconds else math.inf
        # By identity; with the time of the next extension of their leases.
        self._holders: dict[int, tuple[PendingAcks, float]] = {}
        # For acknowledgements that cannot be sent: the number of leases that are kept, the next
        # time to extend the other leases, and the next time to extend all.
        self._kept = 0
        self._keep_new_at = math.inf
        self._keep_all_at = math.inf

    def track_sent(self, holder: PendingAcks, now: float) -> None:
        """Note that acknowledgements are sent, for the first time or again."""
        self._holders.setdefault(id(holder), (holder, now + self._keep_after))

    def track_added(self, holder: PendingAcks, now: float) -> None:
        """Note that acknowledgements were added to `holder`."""
        _, at = self._holders.get(id(holder), (holder, math.inf))
        self._holders[id(holder)] = holder, min(at, now + self._keep_after)

    def untrack(self, holder: PendingAcks) -> None:
        """Note that the acknowledgements of `holder` will not be sent again."""
        self._holders.pop(id(holder), None)

    def next_due(self) -> float:
        """Return the time of the next call of `due_ack_ids`; infinite if none is needed."""
        return min((self._keep_new_at, *(at for _, at in self._holders.values())))

    def due_ack_ids(self, now: float, unsent: Sequence[str]) -> Iterator[Sequence[str]]:
        """Yield the ack ids whose leases must be extended now.

        Args:
            now: The present time.
            unsent: Acknowledgements that wait and cannot be sent. Between calls the list only
                grows, until it is empty.
        """
        again = now + self.seconds / 3
        for key, (holder, at) in self._holders.items():
            if at <= now:
                self._holders[key] = holder, again
                yield holder.ack_ids
        if not unsent:
            self._kept, self._keep_new_at, self._keep_all_at = 0, math.inf, math.inf
        elif self._keep_new_at == math.inf:
            self._keep_new_at = self._keep_all_at = now + self._keep_after
        elif self._keep_new_at <= now:
            self._keep_new_at = now + self._keep_after
            if self._keep_all_at <= now:
                self._kept, self._keep_all_at = 0, again
            if self._kept < len(unsent):
                yield unsent[self._kept :]
            self._kept = len(unsent)

    def clear(self) -> None:
        """Stop keeping leases."""
        self._holders.clear()
        self._keep_new_at = math.inf
