"""The phases of a subscription, and which may follow which."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum

from protocol.clock import Clock


class SubscriptionState(Enum):
    CONNECTING = "connecting"
    STREAMING = "streaming"
    RECONNECTING = "reconnecting"
    CLOSING = "closing"
    CLOSED = "closed"


_NEXT: dict[SubscriptionState, frozenset[SubscriptionState]] = {
    SubscriptionState.CONNECTING: frozenset(
        {SubscriptionState.STREAMING, SubscriptionState.RECONNECTING, SubscriptionState.CLOSING}
    ),
    SubscriptionState.STREAMING: frozenset(
        {SubscriptionState.RECONNECTING, SubscriptionState.CLOSING}
    ),
    SubscriptionState.RECONNECTING: frozenset(
        {SubscriptionState.STREAMING, SubscriptionState.CLOSING}
    ),
    SubscriptionState.CLOSING: frozenset({SubscriptionState.CLOSED}),
    SubscriptionState.CLOSED: frozenset(),
}


@dataclass(frozen=True, slots=True)
class StateChange:
    """A subscription went from one state into another.

    state, previous: the new state and the one before it.
    since: wall time of the change, in seconds since the epoch.
    cause: the error that broke the stream or ended the subscription; None if there was none.
    """

    state: SubscriptionState
    previous: SubscriptionState
    since: float
    cause: Exception | None = None


class Lifecycle:
    """The present state. Any thread may move it; of two that make the same move one is told so.

    Args:
        changed: told of each move by the thread that made it, without a lock held.
    """

    def __init__(self, clock: Clock, changed: Callable[[StateChange], None]) -> None:
        self._clock = clock
        self._changed = changed
        self._lock = threading.Lock()
        now = clock.now()
        self._last = StateChange(SubscriptionState.CONNECTING, SubscriptionState.CONNECTING, now)

    @property
    def state(self) -> SubscriptionState:
        return self._last.state

    @property
    def last_change(self) -> StateChange:
        return self._last

    @property
    def is_stopping(self) -> bool:
        return self._last.state in (SubscriptionState.CLOSING, SubscriptionState.CLOSED)

    def move(self, to: SubscriptionState, cause: Exception | None = None) -> bool:
        """Go to `to` if it may follow the present state; whether it did."""
        with self._lock:
            if to not in _NEXT[self._last.state]:
                return False
            self._last = change = StateChange(to, self._last.state, self._clock.now(), cause)
        self._changed(change)
        return True
