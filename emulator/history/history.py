"""What happened in a broker, the newest of it, and waiting until something has."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING

from emulator.engine.observer import Observer, Resource, Return
from emulator.faults.scope import EVERY, matches
from protocol.clock import SYSTEM_CLOCK, Clock

from .event import Event, Kind, MessageHistory

if TYPE_CHECKING:
    from emulator.engine.record import Delivery, Record

# What was told at a time: kind, time and resource; the messages, and of each the ack id and the
# attempt; seconds. Events are made of it only when somebody asks: the broker's thread has better to
# do.
_Told = tuple[Kind, float, str, Sequence["Record"], Sequence[str], Sequence[int], int]

DEFAULT_LIMIT = 100_000
DEFAULT_MAX_BYTES = 64 * 1024 * 1024


class History(Observer):
    """The newest events of one broker, the oldest first.

    Thread-safe: the broker's thread writes, tests read. A topic or subscription is asked for by its
    full name, its id, or a pattern such as "orders-*"; by default it is all of them.

    Args:
        limit: how many events are kept; with 0 there are none, and waiting works all the same.
        max_bytes: of messages, each counted once for every event of it.
    """

    def __init__(
        self,
        clock: Clock = SYSTEM_CLOCK,
        *,
        limit: int = DEFAULT_LIMIT,
        max_bytes: int = DEFAULT_MAX_BYTES,
    ) -> None:
        if limit < 0:
            raise ValueError(f"limit must be 0 or more: {limit}")
        self.limit = limit
        self._max_bytes = max_bytes
        self._clock = clock
        self._changed = threading.Condition()
        # Of all that was told, so that nobody who waits misses a change.
        self._count = 0
        self._waiting = 0
        self._told: deque[_Told] = deque()
        self._length = 0
        self._bytes = 0

    # ---- what a test asks ----------------------------------------------------------------------

    def events(self, *kinds: Kind, resource: str = EVERY) -> list[Event]:
        """What happened, of these kinds or of all."""
        with self._changed:
            everything = list(self._told)
        return [
            Event(kind, time, where, record, ack_id, attempt, seconds)
            for kind, time, where, records, ack_ids, attempts, seconds in everything
            if (not kinds or kind in kinds) and (resource == EVERY or matches(resource, where))
            for record, ack_id, attempt in zip(records, ack_ids, attempts, strict=True)
        ]

    def publishes(self, topic: str = EVERY) -> list[Event]:
        return self.events(Kind.PUBLISH, resource=topic)

    def deliveries(self, subscription: str = EVERY) -> list[Event]:
        return self.events(Kind.DELIVERY, resource=subscription)

    def acks(self, subscription: str = EVERY) -> list[Event]:
        return self.events(Kind.ACK, resource=subscription)

    def nacks(self, subscription: str = EVERY) -> list[Event]:
        return self.events(Kind.NACK, resource=subscription)

    def expiries(self, subscription: str = EVERY) -> list[Event]:
        """Leases that came to their deadline."""
        return self.events(Kind.EXPIRY, resource=subscription)

    def returns(self, subscription: str = EVERY) -> list[Event]:
        """Messages given back because their consumer went away."""
        return self.events(Kind.RETURN, resource=subscription)

    def deadline_changes(self, subscription: str = EVERY) -> list[Event]:
        return self.events(Kind.DEADLINE_CHANGE, resource=subscription)

    def message(self, message_id: str, topic: str = EVERY) -> MessageHistory:
        """One message and what happened to it.

        Raises:
            LookupError: there is none, or several topics have one with this id: name the topic.
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
        """Forget all of it."""
        with self._changed:
            self._told.clear()
            self._length = self._bytes = 0

    def wait_until(self, holds: Callable[[], bool], timeout: float = 10.0) -> None:
        """Block until `holds()`, which is asked again after everything that happens.

        Raises:
            TimeoutError: it does not after `timeout` seconds of real time.
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
                with self._changed:
                    if not self._changed.wait_for(partial(self._is_past, count), left):
                        break
            if not holds():
                raise TimeoutError(f"what was waited for has not come within {timeout} s")
        finally:
            with self._changed:
                self._waiting -= 1

    def _is_past(self, count: int) -> bool:
        return self._count != count

    # ---- what the broker tells -----------------------------------------------------------------

    def published(self, topic: str, records: Sequence[Record]) -> None:
        if not self.limit:
            return self._tell()
        count = len(records)
        return self._add(
            (Kind.PUBLISH, self._clock.now(), topic, records, [""] * count, [0] * count, 0)
        )

    def delivered(self, subscription: str, deliveries: Sequence[Delivery]) -> None:
        self._outcome(Kind.DELIVERY, subscription, deliveries)

    def acknowledged(self, subscription: str, deliveries: Sequence[Delivery]) -> None:
        self._outcome(Kind.ACK, subscription, deliveries)

    def returned(self, subscription: str, deliveries: Sequence[Delivery], why: Return) -> None:
        kind, counted = _RETURNS[why]
        self._outcome(kind, subscription, deliveries, attempt=1 - counted)

    def extended(self, subscription: str, deliveries: Sequence[Delivery], seconds: int) -> None:
        self._outcome(Kind.DEADLINE_CHANGE, subscription, deliveries, seconds=seconds)

    def finished(self, subscription: str, seqs: Sequence[int]) -> None:
        self._tell()

    def removed(self, kind: Resource, name: str) -> None:
        self._tell()

    def _outcome(
        self,
        kind: Kind,
        subscription: str,
        deliveries: Sequence[Delivery],
        *,
        attempt: int = 1,
        seconds: int = 0,
    ) -> None:
        """`attempt`: which delivery it was about, counted from those that have failed."""
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
        """Make room, at the cost of what was told first."""
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
        """Something has happened."""
        self._count += 1
        if self._waiting:
            with self._changed:
                self._changed.notify_all()


_RETURNS = {
    Return.NACK: (Kind.NACK, 1),
    Return.EXPIRED: (Kind.EXPIRY, 1),
    Return.GIVEN_BACK: (Kind.RETURN, 0),
}


def _topic(events: Iterable[Event]) -> str:
    """Where the message of these events was published, if they tell."""
    return next((event.resource for event in events if event.kind is Kind.PUBLISH), "")
