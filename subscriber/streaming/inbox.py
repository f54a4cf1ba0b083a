"""The queue of one actor thread."""

from __future__ import annotations

import queue
import threading
from typing import Generic, TypeVar

from protocol.clock import Clock

T = TypeVar("T")


class Inbox(Generic[T]):
    """Events for one thread: anybody puts, only its owner takes, many at a time.

    `put` is the queue's own method, a single C call: it is what every acknowledgement costs the
    thread of a callback. Events put after `close` are never taken; who must know uses `offer`.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        # None makes the owner look at the clock again.
        self._queue: queue.SimpleQueue[T | None] = queue.SimpleQueue()
        self.put = self._queue.put
        self._lock = threading.Lock()
        self._closed = False
        clock.add_waker(self.wake)

    def offer(self, event: T) -> bool:
        """Put `event` unless the inbox is closed; False if it is, and then nobody will take it.

        The lock makes the answer final: an event is either in before `close`, whose owner takes it
        in its last round, or refused.
        """
        with self._lock:
            if self._closed:
                return False
            self.put(event)
            return True

    def wake(self) -> None:
        """Let the owner's `take` return, if only with an empty list."""
        self.put(None)

    def take(self, deadline: float | None) -> list[T]:
        """Wait for an event, a wake-up, or `deadline` on the clock; returns all there is then."""
        timeout = self._clock.timeout(deadline)
        try:
            first = self._queue.get(block=timeout != 0.0, timeout=timeout)
        except queue.Empty:
            return []
        return ([] if first is None else [first]) + self.drain()

    def drain(self) -> list[T]:
        """Everything that is there now, without waiting."""
        get = self._queue.get_nowait
        events = (get() for _ in range(self._queue.qsize()))
        return [event for event in events if event is not None]

    def close(self) -> list[T]:
        """Take no more; returns what had been put before."""
        self._clock.remove_waker(self.wake)
        with self._lock:
            self._closed = True
            return self.drain()
