"""The queue of one actor thread."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from typing import Generic, TypeVar

from .clock import Clock

T = TypeVar("T")


class Inbox(Generic[T]):
    """Events for one thread. Any thread may put; only the owner takes, many events at a time.

    `put` is the method of the underlying queue, a single C call, because it runs on the callback's
    thread for every event. Events put after `close` are never taken; use `offer` to detect that.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        # None makes the owner look at the clock again.
        self._queue: queue.SimpleQueue[T | None] = queue.SimpleQueue()
        self.put: Callable[[T | None], None] = self._queue.put
        self._lock = threading.Lock()
        self._closed = False
        clock.add_waker(self.wake)

    def offer(self, event: T) -> bool:
        """Put `event` unless the inbox is closed.

        The lock makes the result final: an event is either put before `close`, and the owner takes
        it in its last round, or it is refused.

        Returns:
            Whether the event was put. If not, no thread will take it.
        """
        with self._lock:
            if self._closed:
                return False
            self.put(event)
            return True

    def wake(self) -> None:
        """Make the owner's `take` return, possibly with an empty list."""
        self.put(None)

    def take(self, deadline: float | None) -> list[T]:
        """Wait for an event, a wake-up, or `deadline` on the clock, and return all events."""
        timeout = self._clock.timeout(deadline)
        try:
            first = self._queue.get(block=timeout != 0.0, timeout=timeout)
        except queue.Empty:
            return []
        return ([] if first is None else [first]) + self.drain()

    def drain(self) -> list[T]:
        """Return all present events without waiting."""
        get = self._queue.get_nowait
        events = (get() for _ in range(self._queue.qsize()))
        return [event for event in events if event is not None]

    def close(self) -> list[T]:
        """Take no more events, and return those already put."""
        self._clock.remove_waker(self.wake)
        with self._lock:
            self._closed = True
            return self.drain()
