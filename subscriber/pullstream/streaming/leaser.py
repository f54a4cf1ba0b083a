"""The leaser: keeps the lease of every unfinished message alive."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from pullstream.columns.portions import Portion, Unit
from pullstream.flow_control import FlowControl
from pullstream.message import Message, ResponseBatch
from pullstream.statistics import Latency
from pullstream_protocol.call_lock import CallLock
from pullstream_protocol.clock import Clock
from pullstream_protocol.due_thread import DueThread

from .lease_table import LeaseTable, Released


class Leaser:
    """Owner of the leases, with a thread that extends leases before they end.

    Owns the LeaseTable, behind one lock. The consumer's thread adds (once per response), the
    dispatcher's thread removes (once per batch of settlements), and the leaser's thread extends. It
    has a lock and not an inbox, because waking this thread for each response would cost more than
    all its work. The same thread ends the waits of ordering keys, during which it keeps their
    leases.

    Guarantees: while a message is in the table, its lease is extended before it ends, until
    max_lease_duration has passed since its receipt. Then the message is removed and given up. No
    callable is called under the lock.

    Args:
        limits: Bounds of the leases.
        clock: Measures time.
        extend: Sends a deadline change: (ack ids, seconds). Must not wait.
        give_up: Takes messages that were removed after max_lease_duration, and their load.
        waits_over: Ends the waits of ordering keys that are over at this moment, and returns when
            the next wait is over. `wake_by` announces new waits.

    Attributes:
        lock: The lock of the table, which a Portion needs to create its messages.
    """

    def __init__(
        self,
        limits: FlowControl,
        clock: Clock,
        *,
        extend: Callable[[list[str], int], None],
        give_up: Callable[[list[Message], Released], None],
        waits_over: Callable[[float], float | None] = lambda now: None,
    ) -> None:
        self._clock = clock
        self._extend = extend
        self._give_up = give_up
        self._waits_over = waits_over
        self.lock = CallLock()
        self._table = LeaseTable(limits)
        self._next_wake: float | None = None
        self._thread = DueThread(
            clock, lambda: self._next_wake, self._do_due_work, name="pullstream-leaser"
        )

    def start(self) -> None:
        """Start the thread that extends leases and ends the waits of ordering keys."""
        self._thread.start()

    @property
    def stream_deadline(self) -> int:
        """Seconds of the lease that the server grants for each delivery."""
        return self._table.stream_deadline

    @property
    def exactly_once(self) -> bool:
        """Whether the newest response reported exactly-once delivery."""
        return self._table.exactly_once

    @exactly_once.setter
    def exactly_once(self, value: bool) -> None:
        self._table.exactly_once = value

    @property
    def longest_lease(self) -> int:
        """Seconds that the server may keep a lease that is no longer extended."""
        return max(self._table.stream_deadline, self._table.extension)

    def __len__(self) -> int:
        return len(self._table)

    def wake_by(self, due: float) -> None:
        """Call `waits_over` at the time `due`, or earlier."""
        with self.lock.once:
            sooner = self._set_wake(due)
        if sooner:
            self._thread.wake()

    def _set_wake(self, due: float) -> bool:
        """Note a due time, under the lock; return whether the thread must be woken for it."""
        sooner = self._next_wake is None or due < self._next_wake
        if sooner:
            self._next_wake = due
        return sooner

    def add_leases(self, batch: ResponseBatch, messages: Sequence[Unit], age: int = 0) -> None:
        """Add the messages of one response, whose leases began at most `age` seconds ago."""
        with self.lock.once:
            sooner = self._set_wake(self._table.add_leases(batch, messages, batch.received_at, age))
        if sooner:
            self._thread.wake()

    def remove_leases(self, messages: Iterable[Message]) -> Released:
        """Remove finished messages; return how many of them were still leased, and their bytes."""
        with self.lock.once:
            return self._table.remove_leases(messages)

    def remove_handled(self, messages: Iterable[Message]) -> Released:
        """Remove acknowledged messages, and learn how long they took."""
        now = self._clock.monotonic()
        with self.lock.once:
            return self._table.remove_handled(messages, now)

    def remove_portions(self, portions: Iterable[Portion]) -> Released:
        """Remove acknowledged portions, and learn how long they took."""
        now = self._clock.monotonic()
        with self.lock.once:
            return self._table.remove_portions(portions, now)

    def latency(self) -> Latency:
        """Return the time from the receipt of messages to their acknowledgement."""
        with self.lock.once:
            return self._table.latency()

    def leased_messages(self) -> list[Message]:
        """Return all messages that are leased now."""
        with self.lock.once:
            return self._table.leased_messages()

    def leased_under(self, ack_ids: Iterable[str]) -> list[Message]:
        """Return the leased messages with these ack ids."""
        with self.lock.once:
            return self._table.leased_under(ack_ids)

    def stop(self, timeout: float | None = None) -> None:
        """Stop extending leases, and end the thread. Idempotent.

        Args:
            timeout: Seconds to wait for the thread, which a hook of the user may block. None: no
                limit.
        """
        self._thread.stop(timeout)

    def _do_due_work(self) -> None:
        with self.lock.once:
            now = self._clock.monotonic()
            work = self._table.due(now)
            due = self._table.next_due()
            # While nothing is leased, the old wake-up time stays. Otherwise every response that
            # arrives at an empty table would wake this thread.
            if due is not None or (self._next_wake is not None and self._next_wake <= now):
                self._next_wake = due
        if work.extend:
            self._extend(work.extend, work.seconds)
        if work.given_up:
            self._give_up(work.given_up, work.released)
        next_wait = self._waits_over(now)
        if next_wait is not None:
            with self.lock.once:
                self._set_wake(next_wait)
