"""Rules of leases, without a thread: which messages are leased, when to extend, when to give up."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from operator import attrgetter

from pullstream.columns.portions import Portion, Unit, ack_ids_in
from pullstream.flow_control import MAX_EXTENSION, MIN_EXTENSION, FlowControl
from pullstream.message import Message, ResponseBatch, ack_ids_of
from pullstream.statistics import Latency
from pullstream_protocol.deadlines import DeadlineTable

from .histograms import handling_times, latencies

# Ack deadline that the server grants on this stream, in seconds, unless the user sets bounds.
DEFAULT_STREAM_DEADLINE = 60

# The shortest extension with exactly-once delivery, in seconds, as in the official clients.
MIN_EXACTLY_ONCE_EXTENSION = 60

# A lease is extended when this part of it has passed. The rest allows for the request's way to the
# server, for a busy process, and for one retry.
EXTEND_AT = 0.8

# An extension is long enough for this part of the messages that were handled recently.
FITTING = 0.99

_BATCH_OF: Callable[[Message], ResponseBatch] = attrgetter("batch")


@dataclass
class Released:
    """Messages that left the table, for the load gauge.

    Attributes:
        messages: Number of messages.
        size: Their bytes.
    """

    messages: int = 0
    size: int = 0

    def add(self, batch: ResponseBatch, messages: int) -> None:
        """Add the number of messages of one response that left."""
        self.messages += messages
        self.size += messages * batch.bytes_each


@dataclass
class LeaseWork:
    """Actions that are due.

    Attributes:
        seconds: Length of the extensions.
        extend: Ack ids of the leases to extend.
        given_up: Messages that were removed, because max_lease_duration has passed.
        released: Count and size of the removed messages.
    """

    seconds: int = 0
    extend: list[str] = field(default_factory=list)
    given_up: list[Message] = field(default_factory=list)
    released: Released = field(default_factory=Released)


class LeaseTable:
    """The messages that are received and not finished. Not thread-safe.

    The messages of one response were leased together and are extended together. So the table has
    one entry for each response. It is due when EXTEND_AT of the present lease has passed, or at the
    end of max_lease_duration if that is earlier. All times are seconds on one monotonic clock.
    """

    def __init__(self, limits: FlowControl) -> None:
        self._limits = limits
        # Seconds of the lease that the server grants for each delivery.
        low = limits.min_duration_per_lease_extension
        high = limits.max_duration_per_lease_extension or MAX_EXTENSION
        self.stream_deadline = int(min(max(DEFAULT_STREAM_DEADLINE, low), high))
        self._table: DeadlineTable[ResponseBatch, Sequence[Unit]] = DeadlineTable()
        self._handling_times = handling_times()
        self._latencies = latencies()
        self._first_wait = min(self.stream_deadline * EXTEND_AT, limits.max_lease_duration)
        self._messages = 0
        # With exactly-once delivery the server rejects an ack or nack after the lease has ended.
        self.exactly_once = False
        # See `leased_under`. A list, because a server may deliver an ack id twice.
        self._by_ack_id: dict[str, list[Message]] | None = None
        # Number of further messages after which the index is dropped.
        self._index_lasts = 0

    @property
    def extension(self) -> int:
        """Seconds of a lease extension: the observed duration of callbacks, within bounds."""
        default_low = MIN_EXACTLY_ONCE_EXTENSION if self.exactly_once else MIN_EXTENSION
        low = self._limits.min_duration_per_lease_extension or default_low
        high = self._limits.max_duration_per_lease_extension or MAX_EXTENSION
        return int(min(max(self._handling_times.percentile(FITTING), low), high))

    def __len__(self) -> int:
        return self._messages

    def add_leases(
        self, batch: ResponseBatch, messages: Sequence[Unit], now: float, age: int = 0
    ) -> float:
        """Add the messages of one response.

        Args:
            batch: The response.
            messages: Its messages, or portions of them.
            now: The present time.
            age: The server granted the leases at most this many seconds ago.

        Returns:
            The time when their leases are due.
        """
        batch.open = len(batch.received)
        # The leases began when the response was received, or earlier.
        batch.lease_ends = now + self.stream_deadline
        self._messages += batch.open
        wait = max(self._first_wait - age, 0.0)
        self._table.set(batch, messages, wait, now)
        if self._by_ack_id is not None:
            self._index(_divided(messages), self._by_ack_id)
            self._index_lasts -= batch.open
            if self._index_lasts < 0:
                self._by_ack_id = None
        return now + wait

    def remove_leases(self, messages: Iterable[Message]) -> Released:
        """Remove finished messages. Messages that are not in the table do not count."""
        released = Released()
        for batch, _, leased in self._finish(messages):
            released.add(batch, leased)
        return released

    def remove_handled(self, messages: Iterable[Message], now: float) -> Released:
        """Remove acknowledged messages, and learn how long they took."""
        released = Released()
        for batch, acked, leased in self._finish(messages):
            seconds = now - batch.received_at
            self._handling_times.add_samples(seconds, acked)
            self._latencies.add_samples(seconds, acked)
            released.add(batch, leased)
        return released

    def remove_portions(self, portions: Iterable[Portion], now: float) -> Released:
        """Remove acknowledged portions, and learn how long they took."""
        released = Released()
        for portion in portions:
            batch = portion.batch
            if portion.leased:
                portion.leased = False
                leased = len(portion)
                self._remove(batch, leased)
            else:
                # The messages were created after the acknowledgement, or while it was on its way.
                leased = self.remove_leases(portion.divided or ()).messages
            seconds = now - batch.received_at
            self._handling_times.add_samples(seconds, len(portion))
            self._latencies.add_samples(seconds, len(portion))
            released.add(batch, leased)
        return released

    def _remove(self, batch: ResponseBatch, messages: int) -> None:
        """Count messages of a response as removed."""
        self._messages -= messages
        batch.open -= messages
        if not batch.open:
            self._table.pop(batch)

    def _finish(self, messages: Iterable[Message]) -> Iterator[tuple[ResponseBatch, int, int]]:
        """Remove messages.

        Yields:
            For each response: the response, the number of its messages, and how many of them were
            in the table.
        """
        # Neighbouring messages nearly always belong to one response.
        for batch, neighbours in groupby(messages, _BATCH_OF):
            count = leased = 0
            for message in neighbours:
                count += 1
                if message.leased:
                    message.leased = False
                    leased += 1
                    if self._by_ack_id is not None:
                        self._unindex(message, self._by_ack_id)
            if leased:
                self._remove(batch, leased)
            yield batch, count, leased

    def latency(self) -> Latency:
        """Return the time from the receipt of messages to their acknowledgement."""
        return Latency(*map(self._latencies.percentile, (0.5, 0.9, 0.99)))

    def due(self, now: float) -> LeaseWork:
        """Remove the messages to give up, and set the next due time of the others."""
        work = LeaseWork(self.extension)
        limit = self._limits.max_lease_duration
        for batch, messages in self._table.pop_due(now):
            unfinished = _leased(messages)
            left = batch.received_at + limit - now
            if left <= 0:
                work.given_up += _divided(unfinished)
            else:
                work.extend += ack_ids_in(unfinished)
                if now < batch.lease_ends:
                    # Otherwise the leases are over, and the extension comes too late.
                    batch.lease_ends = now + work.seconds
                self._table.set(batch, unfinished, min(work.seconds * EXTEND_AT, left), now)
        work.released = self.remove_leases(work.given_up)
        return work

    def next_due(self) -> float | None:
        """Return the time of the next call of `due`; None if no message is leased."""
        return self._table.next_due()

    def leased_under(self, ack_ids: Iterable[str]) -> list[Message]:
        """Return the leased messages with these ack ids.

        The first call makes an index. It is dropped when as many messages have come as it had at
        first, so it costs nothing unless the server refuses extensions, and little if it refuses
        one in each response.
        """
        by_ack_id = self._by_ack_id
        if by_ack_id is None:
            by_ack_id = self._by_ack_id = {}
            leased = self.leased_messages()
            self._index(leased, by_ack_id)
            self._index_lasts = len(leased)
        return [message for ack_id in ack_ids for message in by_ack_id.get(ack_id, ())]

    def _index(self, messages: list[Message], by_ack_id: dict[str, list[Message]]) -> None:
        for ack_id, message in zip(ack_ids_of(messages), messages, strict=True):
            by_ack_id.setdefault(ack_id, []).append(message)

    def _unindex(self, message: Message, by_ack_id: dict[str, list[Message]]) -> None:
        of_id = by_ack_id[message.ack_id]
        of_id.remove(message)
        if not of_id:
            del by_ack_id[message.ack_id]

    def leased_messages(self) -> list[Message]:
        """Return the received messages that are neither finished nor given up."""
        return _divided(unit for units in self._table.values() for unit in _leased(units))


def _leased(units: Iterable[Unit]) -> list[Unit]:
    """Return the messages and undivided portions that are leased."""
    leased: list[Unit] = []
    for unit in units:
        if unit.leased:
            leased.append(unit)
        elif isinstance(unit, Portion) and unit.divided is not None:
            leased += [message for message in unit.divided if message.leased]
    return leased


def _divided(units: Iterable[Unit]) -> list[Message]:
    """Return the messages of several units. The caller holds the lock of the table."""
    messages: list[Message] = []
    for unit in units:
        if isinstance(unit, Portion):
            messages += unit.divide()
        else:
            messages.append(unit)
    return messages
