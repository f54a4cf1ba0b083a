"""The phases of a subscription, and which may follow which."""

from __future__ import annotations

import threading
from enum import Enum


class State(Enum):
    CONNECTING = "connecting"
    STREAMING = "streaming"
    RECONNECTING = "reconnecting"
    STOPPING = "stopping"
    STOPPED = "stopped"


_NEXT: dict[State, frozenset[State]] = {
    State.CONNECTING: frozenset({State.STREAMING, State.RECONNECTING, State.STOPPING}),
    State.STREAMING: frozenset({State.RECONNECTING, State.STOPPING}),
    State.RECONNECTING: frozenset({State.STREAMING, State.STOPPING}),
    State.STOPPING: frozenset({State.STOPPED}),
    State.STOPPED: frozenset(),
}


class Lifecycle:
    """The present state. Any thread may move it; of two that make the same move one is told so."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._state = State.CONNECTING

    @property
    def state(self) -> State:
        return self._state

    @property
    def is_stopping(self) -> bool:
        return self._state in (State.STOPPING, State.STOPPED)

    def move(self, to: State) -> bool:
        """Go to `to` if it may follow the present state; whether it did."""
        with self._lock:
            if to not in _NEXT[self._state]:
                return False
            self._state = to
            return True
