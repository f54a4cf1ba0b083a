"""The published messages and their states, in memory that is allocated at the beginning.

A ledger that grew would hide the growth that the soak looks for.
"""

from __future__ import annotations

import threading
from array import array
from collections.abc import Iterator

from pullstream import AckFuture, AcknowledgeError, Message
from pullstream_protocol.clock import SYSTEM_CLOCK

HANDLED = 1


class Ledger:
    """The messages of one subscription: `keys` keys with the numbers 0, 1, 2, ... in each.

    Thread-safe. Violations are texts, and there should be none.

    Args:
        ordered: No number of a key may begin before the previous one was handled, or redelivered if
            it was nacked.
        exactly_once: No message may be received after an acknowledgement of it has succeeded. (An
            older copy that was received before may still begin: its lease was lost unnoticed.)
        capacity: The largest count of numbers in a key.
    """

    def __init__(self, *, keys: int, capacity: int, ordered: bool, exactly_once: bool) -> None:
        self.lock = threading.Lock()
        self.ordered = ordered
        self.exactly_once = exactly_once
        self.capacity = capacity
        self.published = [0] * keys
        self.deliveries = 0
        self.violations: list[str] = []
        self.unresolved = 0
        self.outcomes: dict[str, int] = {}
        self._state = [bytearray(capacity) for _ in range(keys)]
        self._furthest = [-1] * keys
        # The time when the acknowledgement of a message succeeded, by message id, which our broker
        # counts up. There is room for the copies made by repeated publishing.
        self._acknowledged = array("d", bytes(8 * 4 * keys * capacity))

    def next_numbers(self) -> Iterator[tuple[int, int]]:
        """Yield the next number of each key: (key, number)."""
        for key, number in enumerate(self.published):
            if number < self.capacity:
                yield key, number

    def began(self, message: Message) -> tuple[int, int]:
        """Record that a callback began, and return key and number."""
        key, number = map(int, message.data.split(b":"))
        with self.lock:
            self.deliveries += 1
            if self.ordered and number > self._furthest[key] + 1:
                self._violated(f"key {key}: {number} came after {self._furthest[key]}")
            acknowledged_at = self._acknowledged[int(message.message_id)]
            if self.exactly_once and 0 < acknowledged_at < message.batch.received_at:
                self._violated(f"message {message.message_id} came after it was acknowledged")
        return key, number

    def handled(self, key: int, number: int) -> None:
        """Record that a message was handled and will be acknowledged next."""
        with self.lock:
            self._state[key][number] = HANDLED
            self._furthest[key] = max(self._furthest[key], number)

    def watch(self, message: Message, future: AckFuture) -> None:
        """Record an acknowledgement that has a future."""
        with self.lock:
            self.unresolved += 1
        index = int(message.message_id)
        future.add_done_callback(lambda done: self._resolved(index, future))

    def _resolved(self, index: int, future: AckFuture) -> None:
        error = future.exception()
        with self.lock:
            self.unresolved -= 1
            if error is None:
                self._acknowledged[index] = SYSTEM_CLOCK.monotonic()
                outcome = "SUCCESS"
            else:
                assert isinstance(error, AcknowledgeError)
                outcome = error.error_code.name
            self.outcomes[outcome] = self.outcomes.get(outcome, 0) + 1

    def lost(self) -> list[tuple[int, int]]:
        """Return each (key, number) that was published and never handled."""
        return [
            (key, number)
            for key, count in enumerate(self.published)
            for number in range(count)
            if self._state[key][number] != HANDLED
        ]

    def _violated(self, text: str) -> None:
        # The first ones are enough.
        if len(self.violations) < 100:
            self.violations.append(text)
