"""Gathers messages into lists, for callbacks that take several messages at a time."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence

from pullstream.columns.portions import Portion, Unit, size_of
from pullstream_protocol.clock import Clock
from pullstream_protocol.due_thread import DueThread


class Batcher:
    """Passes on lists of messages when they are full, or when the first message waited long enough.

    Owns the gathered messages, behind one lock, and the lists that are ready. Any thread may add,
    also from within `ready`. The thread that fills a list passes it on; the thread of this class
    watches the time and passes on the other lists. Each list is passed on once. The lists start in
    the order in which they were gathered.

    Args:
        clock: Measures the latency.
        max_messages: Length of a full list.
        max_latency: Seconds that a message waits for others.
        ready: Takes a list. Must not wait; called without a lock held.
    """

    def __init__(
        self,
        clock: Clock,
        *,
        max_messages: int,
        max_latency: float,
        ready: Callable[[list[Unit]], None],
    ) -> None:
        self._clock = clock
        self._max_messages = max_messages
        self._max_latency = max_latency
        self._ready = ready
        self._lock = threading.Lock()
        self._gathered: list[Unit] = []
        # Number of messages that are gathered.
        self._count = 0
        self._full: deque[list[Unit]] = deque()
        self._due: float | None = None
        # When the thread looks next. Never after `_due`, because every list waits for the same
        # time. It stays when a list is full. Otherwise every list would wake the thread.
        self._next_look: float | None = None
        self._closed = False
        self._thread = DueThread(
            clock, lambda: self._next_look, self._pass_on_due, name="pullstream-batcher"
        )

    def start(self) -> None:
        """Start the thread that passes on incomplete lists after `max_latency`."""
        self._thread.start()

    def __len__(self) -> int:
        return self._count

    def add(self, messages: Sequence[Unit], *, is_urgent: bool = False) -> None:
        """Gather messages.

        Args:
            messages: The messages to add, or portions. A portion is not longer than a full list.
            is_urgent: Pass on these messages and all earlier ones without waiting for others.
        """
        with self._lock:
            self._gathered += messages
            self._count += size_of(messages)
            while self._count >= self._max_messages or (is_urgent and self._gathered):
                self._cut()
            if self._gathered and self._due is None:
                self._due = self._clock.monotonic() + self._max_latency
            wakes = self._due is not None and self._next_look is None
            if wakes:
                self._next_look = self._due
        if wakes:
            self._thread.wake()
        self._hand_on()

    def close(self) -> list[Unit]:
        """End the thread, and return the messages that were not passed on. Idempotent."""
        with self._lock:
            self._closed = True
            left, self._gathered = self._gathered, []
            self._count = 0
        while (full := self._next_full()) is not None:
            left += full
        self._thread.stop(timeout=0)
        return left

    def _cut(self) -> None:
        fitting, size = self._max_messages, self._max_messages
        if self._count > len(self._gathered):
            # A portion is not divided, because that would create its messages.
            fitting, size = _fitting(self._gathered, self._max_messages)
        self._full.append(self._gathered[:fitting])
        self._gathered = self._gathered[fitting:]
        self._count = max(self._count - size, 0)
        self._due = None

    def _hand_on(self) -> None:
        while not self._closed and (full := self._next_full()) is not None:
            self._ready(full)

    def _next_full(self) -> list[Unit] | None:
        try:
            return self._full.popleft()
        except IndexError:
            return None

    def _pass_on_due(self) -> None:
        with self._lock:
            if self._due is not None and self._due <= self._clock.monotonic():
                self._cut()
            self._next_look = self._due
        self._hand_on()


def _fitting(units: Sequence[Unit], max_messages: int) -> tuple[int, int]:
    """Return how many of the first units have at most `max_messages` messages, and their number."""
    size = 0
    for count, unit in enumerate(units):
        own = len(unit) if isinstance(unit, Portion) else 1
        if size + own > max_messages:
            return count, size
        size += own
    return len(units), size
