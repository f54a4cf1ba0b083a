"""Guests: threads with other duties that run callbacks now and then, and can be relieved."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Final, Protocol


class Stint:
    """The time from when a guest begins to run callbacks until it goes back to its duties.

    Or until it is relieved of them, because a callback takes long: then another thread has taken
    them over, and the guest is to leave when it comes out of its callback. The guest calls `end`,
    the watch calls `relieve`. Guarantees: one of the two ends the stint, and when `end` has
    returned it is clear which.

    Args:
        take_over: let another thread do the guest's duties; raises if there can be none.
    """

    __slots__ = ("_lock", "_take_over", "is_over", "pieces")

    def __init__(self, take_over: Callable[[], None]) -> None:
        self._take_over = take_over
        self._lock = threading.Lock()
        self.is_over: bool = False
        # Pieces of work that are done, for the watch to see that it gets on.
        self.pieces: int = 0

    def end(self) -> bool:
        """Go back to the duties; False: somebody else does them now."""
        with self._lock:
            goes_back = not self.is_over
            self.is_over = True
            return goes_back

    def relieve(self) -> bool:
        """Have the duties taken over; False: there was no more need.

        Raises:
            RuntimeError: no thread can be started; the stint goes on.
        """
        with self._lock:
            if self.is_over:
                return False
            self._take_over()
            self.is_over = True
            return True


class Guest(Protocol):
    """Somebody whose thread may work along with a pool."""

    def stint(self) -> Stint | None:
        """A new stint; None if the calling thread is not the guest's."""


# Of a worker, which has no other duties.
UNENDING: Final = Stint(lambda: None)
