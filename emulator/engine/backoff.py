"""What waits before it may be delivered again, and how long (the retry policy)."""

from __future__ import annotations

import heapq
import itertools
import math
from typing import TYPE_CHECKING, TypeAlias

from protocol.messages import pubsub_pb2 as pubsub

from .durations import seconds_of

if TYPE_CHECKING:
    from .ordering import KeyLane
    from .record import Delivery

    Item: TypeAlias = Delivery | KeyLane

# Far past the longest backoff; a float doubled more often would overflow in the end.
_MAX_DOUBLINGS = 60


class RetryPolicy:
    """After each failed attempt twice the wait, between two bounds in seconds."""

    def __init__(self, minimum: float, maximum: float) -> None:
        self._minimum = minimum
        self._maximum = maximum

    @classmethod
    def of(cls, subscription: pubsub.Subscription) -> RetryPolicy:
        """Without a policy there is no wait."""
        if not subscription.HasField("retry_policy"):
            return cls(0, 0)
        policy = subscription.retry_policy
        return cls(seconds_of(policy.minimum_backoff), seconds_of(policy.maximum_backoff))

    def delay(self, attempts: int) -> float:
        """Seconds to wait after so many failed attempts (at least 1)."""
        doublings = min(attempts - 1, _MAX_DOUBLINGS)
        return min(math.ldexp(self._minimum, doublings), self._maximum)


class Backoff:
    """Messages, and keys, in the order of the moments at which their wait is over.

    Nothing is taken out before its moment. Whoever gets it then has to see if it still matters.
    """

    def __init__(self) -> None:
        self._numbers = itertools.count()
        self._waiting: list[tuple[float, int, Item]] = []

    def add(self, item: Item, due: float) -> None:
        heapq.heappush(self._waiting, (due, next(self._numbers), item))

    def pop_due(self, now: float) -> list[Item]:
        due: list[Item] = []
        while self._waiting and self._waiting[0][0] <= now:
            due.append(heapq.heappop(self._waiting)[2])
        return due

    def next_due(self) -> float | None:
        return self._waiting[0][0] if self._waiting else None

    def items(self) -> list[Item]:
        return [item for _, _, item in self._waiting]

    def remove(self, gone: set[Item]) -> None:
        self._waiting = [entry for entry in self._waiting if entry[2] not in gone]
        heapq.heapify(self._waiting)
