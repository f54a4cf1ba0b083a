"""States of a subscription, and the allowed transitions between them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum

from pullstream_protocol.call_lock import CallLock
from pullstream_protocol.clock import Clock


class SubscriptionState(Enum):
    """The state of a subscription. CLOSED is final.

    Attributes:
        CONNECTING: The first stream is being opened.
        STREAMING: A stream is open.
        RECONNECTING: The stream broke, and another one is opened after a pause.
        CLOSING: The subscription ends; running work is being finished.
        CLOSED: The subscription has ended.
    """

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
    """A change of a subscription's state.

    Attributes:
        state: The new state.
        previous: The state before the change.
        since: Wall time of the change, in seconds since the epoch.
        cause: The error that broke the stream or ended the subscription; None if there was none.
    """

    state: SubscriptionState
    previous: SubscriptionState
    since: float
    cause: Exception | None = None


class Lifecycle:
    """The present state. Any thread may change it.

    If two threads try the same change, `move` returns True in only one of them.

    Args:
        clock: Gives the time of each change.
        changed: Takes each change, on the thread that made it, without a lock held.
    """

    def __init__(self, clock: Clock, changed: Callable[[StateChange], None]) -> None:
        self._clock = clock
        self._changed = changed
        self._lock = CallLock()
        now = clock.now()
        self._last = StateChange(SubscriptionState.CONNECTING, SubscriptionState.CONNECTING, now)

    @property
    def state(self) -> SubscriptionState:
        """The present state, read without a lock."""
        return self._last.state

    @property
    def last_change(self) -> StateChange:
        """The newest change; before any change, the creation with its time."""
        return self._last

    @property
    def is_stopping(self) -> bool:
        """Whether the state is CLOSING or CLOSED, from which there is no way back."""
        return self._last.state in (SubscriptionState.CLOSING, SubscriptionState.CLOSED)

    def move(self, to: SubscriptionState, cause: Exception | None = None) -> bool:
        """Change to the state `to` if that is allowed, and return whether the state changed."""
        with self._lock.once:
            if to not in _NEXT[self._last.state]:
                return False
            self._last = change = StateChange(to, self._last.state, self._clock.now(), cause)
        self._changed(change)
        return True
