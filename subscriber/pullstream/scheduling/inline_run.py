"""Inline runs: a thread with other duties runs callbacks itself for a while."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Final, Protocol


class InlineRun:
    """The time in which an inline caller runs callbacks instead of its other duties.

    It ends in one of two ways. Usually the caller calls `end` and returns to its duties. If a
    callback is slow, the stall monitor calls `relieve`: another thread takes over the duties, and
    the caller must leave when its callback returns. Guarantees: exactly one of the two calls ends
    the run, and once `end` has returned it is clear which one.

    Args:
        take_over: Lets another thread take over the duties. Raises RuntimeError if no thread can be
            started.

    Attributes:
        is_over: Whether the run has ended.
        items: Number of work items done. The stall monitor reads it to detect progress.
    """

    __slots__ = ("_lock", "_take_over", "is_over", "items")

    def __init__(self, take_over: Callable[[], None]) -> None:
        self._take_over = take_over
        self._lock = threading.Lock()
        self.is_over: bool = False
        self.items: int = 0

    def end(self) -> bool:
        """Return to the duties; return False if another thread has taken them over."""
        with self._lock:
            goes_back = not self.is_over
            self.is_over = True
            return goes_back

    def relieve(self) -> bool:
        """Let another thread take over the duties; return False if the run was over already.

        Raises:
            RuntimeError: No thread can be started. The run continues.
        """
        with self._lock:
            if self.is_over:
                return False
            self._take_over()
            self.is_over = True
            return True


class InlineCaller(Protocol):
    """An inline caller: an object whose thread may run callbacks of a pool."""

    def inline_run(self) -> InlineRun | None:
        """Begin an inline run; return None if the calling thread is not the inline caller's."""


# The run of a worker, which has no other duties.
ALWAYS: Final = InlineRun(lambda: None)
