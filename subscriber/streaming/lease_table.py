"""The rules of leases, without a thread: who holds one, when to extend it, when to give it up."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from protocol.deadlines import DeadlineTable
from subscriber.flow_control import MAX_EXTENSION, MIN_EXTENSION, FlowControl
from subscriber.message import Message

from .handling_times import HandlingTimes

# Deadline of a lease as the server grants it on this stream, in seconds, unless the user sets
# bounds.
DEFAULT_STREAM_DEADLINE = 60

# A lease is extended when this much of it has passed. The rest is for the request to arrive, for a
# busy process, and for one retry.
EXTEND_AT = 0.8


@dataclass
class LeaseWork:
    """What is to be done now: extend `extend` by `seconds`, and give up `given_up`."""

    seconds: int = 0
    extend: list[str] = field(default_factory=list)
    given_up: list[Message] = field(default_factory=list)


@dataclass
class Released:
    """What left the table: for the load gauge."""

    messages: int = 0
    size: int = 0


class LeaseTable:
    """The messages that are received and not finished, by ack id. Not thread-safe.

    Each is due when EXTEND_AT of its present lease has passed, or at the end of max_lease_duration
    if that comes first. All times are seconds on one monotonic clock.
    """

    def __init__(self, limits: FlowControl) -> None:
        self._limits = limits
        self._table: DeadlineTable[str, Message] = DeadlineTable()
        self._times = HandlingTimes()
        self._first_wait = min(self.stream_deadline * EXTEND_AT, limits.max_lease_duration)

    @property
    def stream_deadline(self) -> int:
        """Seconds of the lease that the server grants with each delivery."""
        low = self._limits.min_duration_per_lease_extension
        high = self._limits.max_duration_per_lease_extension or MAX_EXTENSION
        return int(min(max(DEFAULT_STREAM_DEADLINE, low), high))

    @property
    def extension(self) -> int:
        """Seconds by which a lease is extended now: what callbacks are seen to take, in bounds."""
        low = self._limits.min_duration_per_lease_extension or MIN_EXTENSION
        high = self._limits.max_duration_per_lease_extension or MAX_EXTENSION
        return int(min(max(self._times.percentile(), low), high))

    def __len__(self) -> int:
        return len(self._table)

    def add(self, messages: Iterable[Message], now: float) -> None:
        """Messages came in, their leases just granted by the server."""
        self._table.set_all(
            ((message.ack_id, message) for message in messages), self._first_wait, now
        )

    def remove(self, ack_ids: Iterable[str]) -> Released:
        """Messages are finished; ids that are not here (any more) do not count."""
        released = Released()
        pop = self._table.pop
        for ack_id in ack_ids:
            message = pop(ack_id)
            if message is not None:
                released.messages += 1
                released.size += message.share
        return released

    def handled(self, messages: Sequence[Message], now: float) -> None:
        """Learn from messages that were acknowledged."""
        # Those of one response were received at the same moment.
        for received_at, count in Counter([m.received_at for m in messages]).items():
            self._times.add(now - received_at, count)

    def due(self, now: float) -> LeaseWork:
        """Take out what is to be given up, and set the others' next due time."""
        work = LeaseWork(self.extension)
        limit = self._limits.max_lease_duration
        for ack_id, message in self._table.pop_due(now):
            left = message.received_at + limit - now
            if left <= 0:
                work.given_up.append(message)
                continue
            work.extend.append(ack_id)
            self._table.set(ack_id, message, min(work.seconds * EXTEND_AT, left), now)
        return work

    def next_due(self) -> float | None:
        return self._table.next_due()

    def messages(self) -> list[Message]:
        return self._table.values()
