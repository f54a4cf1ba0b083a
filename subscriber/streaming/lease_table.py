"""The rules of leases, without a thread: who holds one, when to extend it, when to give it up."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import groupby
from operator import attrgetter

from protocol.deadlines import DeadlineTable
from subscriber.flow_control import MAX_EXTENSION, MIN_EXTENSION, FlowControl
from subscriber.message import Batch, Message, ack_ids_of
from subscriber.statistics import Latency

from .handling_times import HandlingTimes
from .latencies import Latencies

# Deadline of a lease as the server grants it on this stream, in seconds, unless the user sets
# bounds.
DEFAULT_STREAM_DEADLINE = 60

# The least extension with exactly-once delivery, as the official clients have it.
MIN_EXACTLY_ONCE_EXTENSION = 60

# A lease is extended when this much of it has passed. The rest is for the request to arrive, for a
# busy process, and for one retry.
EXTEND_AT = 0.8

_BATCH_OF: Callable[[Message], Batch] = attrgetter("batch")


@dataclass
class Released:
    """What left the table: for the load gauge."""

    messages: int = 0
    size: int = 0

    def add(self, batch: Batch, messages: int) -> None:
        """So many messages of one response left."""
        self.messages += messages
        self.size += messages * batch.share


@dataclass
class LeaseWork:
    """What is to be done now: extend `extend` by `seconds`; `given_up` are here no more."""

    seconds: int = 0
    extend: list[str] = field(default_factory=list)
    given_up: list[Message] = field(default_factory=list)
    released: Released = field(default_factory=Released)


class LeaseTable:
    """The messages that are received and not finished. Not thread-safe.

    The messages of one response were leased together and are extended together, so the table has
    one entry a response: it is due when EXTEND_AT of the present lease has passed, or at the end of
    max_lease_duration if that comes first. All times are seconds on one monotonic clock.
    """

    def __init__(self, limits: FlowControl) -> None:
        self._limits = limits
        self._table: DeadlineTable[Batch, list[Message]] = DeadlineTable()
        self._times = HandlingTimes()
        self._latencies = Latencies()
        self._first_wait = min(self.stream_deadline * EXTEND_AT, limits.max_lease_duration)
        self._messages = 0
        # Whether the subscription delivers exactly once: then a lost lease is a lost verdict.
        self.exactly_once = False

    @property
    def stream_deadline(self) -> int:
        """Seconds of the lease that the server grants with each delivery."""
        low = self._limits.min_duration_per_lease_extension
        high = self._limits.max_duration_per_lease_extension or MAX_EXTENSION
        return int(min(max(DEFAULT_STREAM_DEADLINE, low), high))

    @property
    def extension(self) -> int:
        """Seconds by which a lease is extended now: what callbacks are seen to take, in bounds."""
        default_low = MIN_EXACTLY_ONCE_EXTENSION if self.exactly_once else MIN_EXTENSION
        low = self._limits.min_duration_per_lease_extension or default_low
        high = self._limits.max_duration_per_lease_extension or MAX_EXTENSION
        return int(min(max(self._times.percentile(), low), high))

    def __len__(self) -> int:
        return self._messages

    def add(self, batch: Batch, messages: list[Message], now: float, age: int = 0) -> float:
        """The messages of one response came in, their leases granted by the server `age` seconds
        ago at most.

        Returns the time when they are due.
        """
        batch.open = len(messages)
        self._messages += batch.open
        wait = max(self._first_wait - age, 0.0)
        self._table.set(batch, messages, wait, now)
        return now + wait

    def remove(self, messages: Iterable[Message]) -> Released:
        """Messages are finished; those that are not here (any more) do not count."""
        released = Released()
        for batch, _, leased in self._finish(messages):
            released.add(batch, leased)
        return released

    def handled(self, messages: Iterable[Message], now: float) -> Released:
        """As `remove`, of messages that were acknowledged: learns how long they took, too."""
        released = Released()
        for batch, acked, leased in self._finish(messages):
            self._times.add(now - batch.received_at, acked)
            self._latencies.add(now - batch.received_at, acked)
            released.add(batch, leased)
        return released

    def _finish(self, messages: Iterable[Message]) -> Iterator[tuple[Batch, int, int]]:
        """Take messages out; yields each response, how many are its, how many of them were here."""
        # Neighbours are nearly always of one response.
        for batch, neighbours in groupby(messages, _BATCH_OF):
            count = leased = 0
            for message in neighbours:
                count += 1
                if message.leased:
                    message.leased = False
                    leased += 1
            if leased:
                self._messages -= leased
                batch.open -= leased
                if not batch.open:
                    self._table.pop(batch)
            yield batch, count, leased

    def latency(self) -> Latency:
        """How long messages were held until they were acknowledged."""
        return self._latencies.snapshot()

    def due(self, now: float) -> LeaseWork:
        """Take out what is to be given up, and set the others' next due time."""
        work = LeaseWork(self.extension)
        limit = self._limits.max_lease_duration
        for batch, messages in self._table.pop_due(now):
            unfinished = [message for message in messages if message.leased]
            left = batch.received_at + limit - now
            if left <= 0:
                work.given_up += unfinished
            else:
                work.extend += ack_ids_of(unfinished)
                self._table.set(batch, unfinished, min(work.seconds * EXTEND_AT, left), now)
        work.released = self.remove(work.given_up)
        return work

    def next_due(self) -> float | None:
        return self._table.next_due()

    def messages(self) -> list[Message]:
        return [message for batch in self._table.values() for message in batch if message.leased]
