"""Gathers messages into lists, for callbacks that take several messages at a time."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable

from pullstream.message import Message
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
        ready: Callable[[list[Message]], None],
    ) -> None:
        self._clock = clock
        self._max_messages = max_messages
        self._max_latency = max_latency
        self._ready = ready
        self._lock = threading.Lock()
        self._gathered: list[Message] = []
        self._full: deque[list[Message]] = deque()
        self._due: float | None = None
        self._closed = False
        self._thread = DueThread(
            clock, lambda: self._due, self._pass_on_due, name="pullstream-batcher"
        )

    def start(self) -> None:
        """Start the thread that passes on incomplete lists after `max_latency`."""
        self._thread.start()

    def __len__(self) -> int:
        return len(self._gathered)

    def add(self, messages: list[Message], *, is_urgent: bool = False) -> None:
        """Gather messages.

        Args:
            messages: The messages to add.
            is_urgent: Pass on these messages and all earlier ones without waiting for others.
        """
        with self._lock:
            self._gathered += messages
            while len(self._gathered) >= self._max_messages or (is_urgent and self._gathered):
                self._cut()
            starts = self._gathered and self._due is None
            if starts:
                self._due = self._clock.monotonic() + self._max_latency
        if starts:
            self._thread.wake()
        self._hand_on()

    def close(self) -> list[Message]:
        """End the thread, and return the messages that were not passed on. Idempotent."""
        with self._lock:
            self._closed = True
            left, self._gathered = self._gathered, []
        while (full := self._next_full()) is not None:
            left += full
        self._thread.stop(timeout=0)
        return left

    def _cut(self) -> None:
        self._full.append(self._gathered[: self._max_messages])
        self._gathered = self._gathered[self._max_messages :]
        self._due = None

    def _hand_on(self) -> None:
        while not self._closed and (full := self._next_full()) is not None:
            self._ready(full)

    def _next_full(self) -> list[Message] | None:
        try:
            return self._full.popleft()
        except IndexError:
            return None

    def _pass_on_due(self) -> None:
        with self._lock:
            if self._due is not None and self._due <= self._clock.monotonic():
                self._cut()
        self._hand_on()
