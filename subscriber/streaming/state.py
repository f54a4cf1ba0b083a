"""The phases of a subscription, and which may follow which."""

from __future__ import annotations

import threading
from enum import Enum


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


class Lifecycle:
    """The present state. Any thread may move it; of two that make the same move one is told so."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._state = SubscriptionState.CONNECTING

    @property
    def state(self) -> SubscriptionState:
        return self._state

    @property
    def is_stopping(self) -> bool:
        return self._state in (SubscriptionState.CLOSING, SubscriptionState.CLOSED)

    def move(self, to: SubscriptionState) -> bool:
        """Go to `to` if it may follow the present state; whether it did."""
        with self._lock:
            if to not in _NEXT[self._state]:
                return False
            self._state = to
            return True
