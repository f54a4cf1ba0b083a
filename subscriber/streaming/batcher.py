"""Gathers messages for callbacks that take many at a time."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable

from protocol.clock import Clock
from subscriber.message import Message

from .inbox import Inbox


class Batcher:
    """Hands on lists of messages: full ones at once, others when their first has waited enough.

    Owns what has been gathered, behind one lock, and the lists that are to be handed on. Any thread
    adds, also from within `ready`; a full list is handed on by the thread that filled it, another
    by a thread of this class, which watches the time. Each list is handed on once, and begun in the
    order in which they were gathered.

    Args:
        max_messages: the length of a full list.
        max_latency: seconds that a message waits for others.
        ready: takes a list. Must not wait; called without a lock held.
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
        self._inbox: Inbox[None] = Inbox(clock)
        self._thread = threading.Thread(target=self._run, name="pullstream-batcher", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def __len__(self) -> int:
        return len(self._gathered)

    def add(self, messages: list[Message], *, is_urgent: bool = False) -> None:
        """Gather messages; with `is_urgent` they, and all before them, wait for no others."""
        with self._lock:
            self._gathered += messages
            while len(self._gathered) >= self._max_messages or (is_urgent and self._gathered):
                self._cut()
            starts = self._gathered and self._due is None
            if starts:
                self._due = self._clock.monotonic() + self._max_latency
        if starts:
            self._inbox.wake()
        self._hand_on()

    def close(self) -> list[Message]:
        """End the thread; returns what was gathered and is not handed on any more. Idempotent."""
        with self._lock:
            self._closed = True
            left, self._gathered = self._gathered, []
        while (full := self._next_full()) is not None:
            left += full
        self._inbox.wake()
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

    def _run(self) -> None:
        while not self._closed:
            self._inbox.take(self._due)
            with self._lock:
                if self._due is not None and self._due <= self._clock.monotonic():
                    self._cut()
            self._hand_on()
        self._inbox.close()
