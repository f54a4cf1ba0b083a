"""The leaser: keeps the lease of every unfinished message alive."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable

from protocol.clock import Clock
from subscriber.flow_control import FlowControl
from subscriber.message import Batch, Message
from subscriber.statistics import Latency

from .inbox import Inbox
from .lease_table import LeaseTable, Released


class Leaser:
    """Owner of the leases, with a thread that extends those that are due.

    Owns the LeaseTable, behind one lock. The consumer's thread adds (once per response), the
    dispatcher's removes (once per batch of outcomes), the leaser's own thread extends. The lock,
    not an inbox, because waking this thread for each response would cost more than all it has to
    do.

    Guarantees: while a message is in the table its lease is extended before it ends, until
    max_lease_duration has passed since its receipt; then it is removed and given up. Neither
    callable is called under the lock.

    Args:
        extend: send a deadline change: (ack ids, seconds). Must not wait.
        give_up: told of messages that were removed because their time is over, and what that frees.
    """

    def __init__(
        self,
        limits: FlowControl,
        clock: Clock,
        *,
        extend: Callable[[list[str], int], None],
        give_up: Callable[[list[Message], Released], None],
    ) -> None:
        self._clock = clock
        self._extend = extend
        self._give_up = give_up
        self._lock = threading.Lock()
        self._table = LeaseTable(limits)
        self._stopped = False
        self._inbox: Inbox[None] = Inbox(clock)
        self._next_wake: float | None = None
        self._thread = threading.Thread(target=self._run, name="pullstream-leaser", daemon=True)

    def start(self) -> None:
        self._thread.start()

    @property
    def stream_deadline(self) -> int:
        return self._table.stream_deadline

    @property
    def exactly_once(self) -> bool:
        """Whether the subscription delivers exactly once, by the newest response."""
        return self._table.exactly_once

    @exactly_once.setter
    def exactly_once(self, value: bool) -> None:
        self._table.exactly_once = value

    def __len__(self) -> int:
        return len(self._table)

    def add(self, batch: Batch, messages: list[Message], age: int = 0) -> None:
        """The messages of one response came in, their leases granted `age` seconds ago at most."""
        with self._lock:
            due = self._table.add(batch, messages, batch.received_at, age)
            sooner = self._next_wake is None or due < self._next_wake
            if sooner:
                self._next_wake = due
        if sooner:
            self._inbox.wake()

    def remove(self, messages: Iterable[Message]) -> Released:
        """Messages are finished; returns how many of them were still leased, and their bytes."""
        with self._lock:
            return self._table.remove(messages)

    def handled(self, messages: Iterable[Message]) -> Released:
        """As `remove`, of messages that were acknowledged: learns how long they took."""
        now = self._clock.monotonic()
        with self._lock:
            return self._table.handled(messages, now)

    def latency(self) -> Latency:
        """How long messages were held until they were acknowledged."""
        with self._lock:
            return self._table.latency()

    def messages(self) -> list[Message]:
        """Everything that is leased now."""
        with self._lock:
            return self._table.messages()

    def stop(self, timeout: float | None = None) -> None:
        """Extend nothing any more, and end the thread. Idempotent.

        Args:
            timeout: seconds to wait for it. A hook of the user's may hold it up.
        """
        self._stopped = True
        self._inbox.wake()
        self._thread.join(timeout)
        self._inbox.close()

    def _run(self) -> None:
        while not self._stopped:
            with self._lock:
                now = self._clock.monotonic()
                work = self._table.due(now)
                due = self._table.next_due()
                # While nothing is leased the old moment stands: else every response that comes to
                # an empty table would wake us.
                if due is not None or (self._next_wake is not None and self._next_wake <= now):
                    self._next_wake = due
            if work.extend:
                self._extend(work.extend, work.seconds)
            if work.given_up:
                self._give_up(work.given_up, work.released)
            self._inbox.take(self._next_wake)
