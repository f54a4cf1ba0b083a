"""The queue of one actor thread."""

from __future__ import annotations

import queue
from collections.abc import Callable
from typing import Generic, TypeVar

from .clock import Clock
from .queue_wait import get_within

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
        self._closed = False
        clock.add_waker(self.wake)

    def offer(self, event: T) -> list[T]:
        """Put `event`, and return the events that no thread will take: none, or all after `close`.

        No event is lost, because the two threads do two steps in opposite order: this thread puts
        and then reads the flag; `close` sets the flag and then takes. An event of another thread
        may be among the returned ones, and is then not returned there. A lock would block a signal
        handler that interrupts its holder.
        """
        self.put(event)
        return self.drain() if self._closed else []

    def wake(self) -> None:
        """Make the owner's `take` return, possibly with an empty list."""
        self.put(None)

    def take(self, deadline: float | None) -> list[T]:
        """Wait for an event, a wake-up, or `deadline` on the clock, and return all events."""
        timeout = self._clock.timeout(deadline)
        try:
            first = get_within(self._queue, timeout)
        except queue.Empty:
            return []
        return ([] if first is None else [first]) + self.drain()

    def drain(self) -> list[T]:
        """Return all present events without waiting."""
        events = []
        for _ in range(self._queue.qsize()):
            try:
                event = self._queue.get_nowait()
            except queue.Empty:
                # After `close`, several threads may take.
                break
            if event is not None:
                events.append(event)
        return events

    def close(self) -> list[T]:
        """Take no more events, and return those already put."""
        self._clock.remove_waker(self.wake)
        self._closed = True
        return self.drain()
