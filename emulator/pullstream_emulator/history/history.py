"""The newest events of a broker, and waiting for further events."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING

from pullstream_emulator.engine.observer import ObservedDelivery, Observer, Resource, ReturnReason
from pullstream_emulator.faults.scope import EVERY, matches
from pullstream_protocol.clock import SYSTEM_CLOCK, Clock

from .event import Event, Kind, MessageHistory

if TYPE_CHECKING:
    from pullstream_emulator.engine.record import Record

# Events of one call: kind, time and resource; for each message the record, the ack id and the
# attempt; seconds. `Event` objects are built only on request, to spare the broker's thread.
_Told = tuple[Kind, float, str, Sequence["Record"], Sequence[str], Sequence[int], int]

# Interval at which `wait_until` calls its function without an event, in seconds.
_ASK_SECONDS = 0.02

DEFAULT_LIMIT = 100_000
DEFAULT_MAX_BYTES = 64 * 1024 * 1024


class History(Observer):
    """The newest events of one broker, oldest first.

    Thread-safe: the broker's thread writes, tests read. A topic or subscription is given by its
    full name, its id, or a pattern such as "orders-*"; the default is all of them.
    """

    def __init__(
        self,
        clock: Clock = SYSTEM_CLOCK,
        *,
        limit: int = DEFAULT_LIMIT,
        max_bytes: int = DEFAULT_MAX_BYTES,
    ) -> None:
        """Create an empty history.

        Args:
            clock: Source of the events' times.
            limit: Number of events to keep. With 0 none are kept, but waiting still works.
            max_bytes: Limit for the events' messages, in bytes. A message counts once for each of
                its events.

        Raises:
            ValueError: `limit` is negative.
        """
        if limit < 0:
            raise ValueError(f"limit must be 0 or more: {limit}")
        self.limit = limit
        self._max_bytes = max_bytes
        self._clock = clock
        self._changed = threading.Condition()
        # Counts all changes, so that a waiting thread misses none.
        self._count = 0
        self._waiting = 0
        self._told: deque[_Told] = deque()
        self._length = 0
        self._bytes = 0

    # ---- queries of tests ----------------------------------------------------------------------

    def events(self, *kinds: Kind, resource: str = EVERY) -> list[Event]:
        """Return the events of these kinds; of all kinds if none is given."""
        with self._changed:
            everything = list(self._told)
        return [
            Event(kind, time, where, record, ack_id, attempt, seconds)
            for kind, time, where, records, ack_ids, attempts, seconds in everything
            if (not kinds or kind in kinds) and (resource == EVERY or matches(resource, where))
            for record, ack_id, attempt in zip(records, ack_ids, attempts, strict=True)
        ]

    def publishes(self, topic: str = EVERY) -> list[Event]:
        """Return the published messages, one event for each."""
        return self.events(Kind.PUBLISH, resource=topic)

    def deliveries(self, subscription: str = EVERY) -> list[Event]:
        """Return the deliveries, including redeliveries."""
        return self.events(Kind.DELIVERY, resource=subscription)

    def acks(self, subscription: str = EVERY) -> list[Event]:
        """Return the accepted acks."""
        return self.events(Kind.ACK, resource=subscription)

    def nacks(self, subscription: str = EVERY) -> list[Event]:
        """Return the nacks of consumers."""
        return self.events(Kind.NACK, resource=subscription)

    def expiries(self, subscription: str = EVERY) -> list[Event]:
        """Return the leases that reached their deadline."""
        return self.events(Kind.EXPIRY, resource=subscription)

    def returns(self, subscription: str = EVERY) -> list[Event]:
        """Return messages given back before a callback saw them, or when a consumer went away."""
        return self.events(Kind.RETURN, resource=subscription)

    def deadline_changes(self, subscription: str = EVERY) -> list[Event]:
        """Return the extensions of leases; `seconds` has the requested deadline."""
        return self.events(Kind.DEADLINE_CHANGE, resource=subscription)

    def message(self, message_id: str, topic: str = EVERY) -> MessageHistory:
        """Return one message with its events.

        Args:
            message_id: The message's id.
            topic: Name, id or pattern of its topic.

        Raises:
            LookupError: There is no such message, or several topics have one with this id: name
                the topic.
        """
        by_record: dict[Record, list[Event]] = {}
        for event in self.events():
            if event.message_id == message_id:
                by_record.setdefault(event.record, []).append(event)
        found = [
            MessageHistory(message_id, _topic(events), events[0].message, tuple(events))
            for events in by_record.values()
            if topic == EVERY or matches(topic, _topic(events))
        ]
        if not found:
            raise LookupError(f"the history has no message {message_id!r}")
        if len(found) > 1:
            topics = ", ".join(each.topic or "(unknown)" for each in found)
            raise LookupError(f"several topics have a message {message_id!r}: {topics}")
        return found[0]

    def clear(self) -> None:
        """Remove all events."""
        with self._changed:
            self._told.clear()
            self._length = self._bytes = 0

    def wait_until(self, holds: Callable[[], bool], timeout: float = 10.0) -> None:
        """Block until `holds()` is true.

        It is called again after each event of the broker, and every 0.02 seconds, because it may
        depend on something outside the broker.

        Args:
            holds: The condition.
            timeout: Longest wait, in seconds of real time.

        Raises:
            TimeoutError: The condition is still false after `timeout` seconds.
        """
        due = SYSTEM_CLOCK.monotonic() + timeout
        with self._changed:
            self._waiting += 1
        try:
            while True:
                count = self._count
                if holds():
                    return
                left = due - SYSTEM_CLOCK.monotonic()
                if left <= 0:
                    raise TimeoutError(f"the condition did not become true within {timeout} s")
                with self._changed:
                    self._changed.wait_for(partial(self._is_past, count), min(left, _ASK_SECONDS))
        finally:
            with self._changed:
                self._waiting -= 1

    def _is_past(self, count: int) -> bool:
        return self._count != count

    # ---- events of the broker ------------------------------------------------------------------

    def published(self, topic: str, records: Sequence[Record]) -> None:
        """Record one event for each message; with a limit of 0, only wake waiting tests."""
        if not self.limit:
            return self._tell()
        count = len(records)
        return self._add(
            (Kind.PUBLISH, self._clock.now(), topic, records, [""] * count, [0] * count, 0)
        )

    def delivered(self, subscription: str, deliveries: Sequence[ObservedDelivery]) -> None:
        """Record one delivery for each message."""
        self._outcome(Kind.DELIVERY, subscription, deliveries)

    def acknowledged(self, subscription: str, deliveries: Sequence[ObservedDelivery]) -> None:
        """Record one ack for each message."""
        self._outcome(Kind.ACK, subscription, deliveries)

    def returned(
        self, subscription: str, deliveries: Sequence[ObservedDelivery], why: ReturnReason
    ) -> None:
        """Record nacks, expiries or returns, with the number of the attempt that has ended."""
        kind, counted = _RETURNS[why]
        self._outcome(kind, subscription, deliveries, attempt=1 - counted)

    def extended(
        self, subscription: str, deliveries: Sequence[ObservedDelivery], seconds: int
    ) -> None:
        """Record one deadline change for each lease."""
        self._outcome(Kind.DEADLINE_CHANGE, subscription, deliveries, seconds=seconds)

    def finished(self, subscription: str, seqs: Sequence[int]) -> None:
        """Wake waiting tests, because the backlog has changed; nothing is recorded."""
        self._tell()

    def removed(self, kind: Resource, name: str) -> None:
        """Wake waiting tests; nothing is recorded."""
        self._tell()

    def _outcome(
        self,
        kind: Kind,
        subscription: str,
        deliveries: Sequence[ObservedDelivery],
        *,
        attempt: int = 1,
        seconds: int = 0,
    ) -> None:
        """Record events; `attempt` is the delivery attempt, relative to the failed ones."""
        if not self.limit:
            return self._tell()
        records = [delivery.record for delivery in deliveries]
        ack_ids = [delivery.ack_id for delivery in deliveries]
        attempts = [delivery.attempts + attempt for delivery in deliveries]
        now = self._clock.now()
        return self._add((kind, now, subscription, records, ack_ids, attempts, seconds))

    def _add(self, told: _Told) -> None:
        records = told[3]
        with self._changed:
            self._told.append(told)
            self._length += len(records)
            self._bytes += sum([record.size for record in records])
            while self._length > self.limit or self._bytes > self._max_bytes:
                self._drop_oldest()
        self._tell()

    def _drop_oldest(self) -> None:
        """Make room by removing the oldest events."""
        kind, time, resource, records, ack_ids, attempts, seconds = self._told.popleft()
        gone = min(max(self._length - self.limit, 0), len(records))
        size = sum([record.size for record in records[:gone]])
        while gone < len(records) and self._bytes - size > self._max_bytes:
            size += records[gone].size
            gone += 1
        self._length -= gone
        self._bytes -= size
        if gone < len(records):
            rest = (records[gone:], ack_ids[gone:], attempts[gone:])
            self._told.appendleft((kind, time, resource, *rest, seconds))

    def _tell(self) -> None:
        """Note a change, and wake waiting threads."""
        self._count += 1
        if self._waiting:
            with self._changed:
                self._changed.notify_all()


_RETURNS = {
    ReturnReason.NACK: (Kind.NACK, 1),
    ReturnReason.EXPIRED: (Kind.EXPIRY, 1),
    ReturnReason.GIVEN_BACK: (Kind.RETURN, 0),
}


def _topic(events: Iterable[Event]) -> str:
    """Return the topic in which these events' message was published, if they include it."""
    return next((event.resource for event in events if event.kind is Kind.PUBLISH), "")
