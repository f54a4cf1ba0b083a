"""The newest events of a broker, and waiting for further events."""

from __future__ import annotations

import math
import threading
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from pullstream_emulator.engine.delivery.lease_runs import DeliverySpan
from pullstream_emulator.engine.observer import LeaseEnd, ObservedDelivery, Observer, Resource
from pullstream_emulator.engine.record import size_of
from pullstream_emulator.faults.scope import EVERY, matches
from pullstream_protocol.clock import SYSTEM_CLOCK, Clock

from .event import Event, Kind, MessageHistory

if TYPE_CHECKING:
    from pullstream_emulator.engine.record import Record


class _Call(NamedTuple):
    """The events of one call of the observer, one for each message.

    `Event` objects are built only on request, to spare the broker's thread.

    Attributes:
        first: The number of the first event.
        last: The number of the last event.
        kind: Their kind.
        time: Their time.
        resource: Their topic or subscription.
        records: The messages.
        size: Their size in bytes.
        ack_ids: Their ack ids; empty for a publish.
        attempts: Their failed attempts; empty for a publish.
        more: What to add to `attempts` for the number of the attempt.
        seconds: See `Event`.
        detail: See `Event`.
    """

    first: int
    last: int
    kind: Kind
    time: float
    resource: str
    records: Sequence[Record]
    size: int
    ack_ids: Sequence[str]
    attempts: Sequence[int]
    more: int
    seconds: int
    detail: str

    def event(self, index: int) -> Event:
        """Return the event of the message at this index."""
        return Event(
            self.kind,
            self.time,
            self.resource,
            self.records[index],
            self.ack_ids[index] if self.ack_ids else "",
            self.attempts[index] + self.more if self.attempts else 0,
            self.seconds,
            self.detail,
            self.first + index,
        )


# Makes a call from a tuple, four times as fast as the class does.
_new_call: Callable[[tuple[Any, ...]], _Call] = partial(tuple.__new__, _Call)

# Interval at which `wait_until` calls its function without an event, in seconds.
_ASK_SECONDS = 0.02

DEFAULT_LIMIT = 100_000
DEFAULT_MAX_BYTES = 64 * 1024 * 1024


class History(Observer):
    """The newest events of one broker, oldest first.

    Thread-safe: the broker's thread writes, without a lock; any thread may read and clear. A topic
    or subscription is given by its full name, its id, or a pattern such as "orders-*"; the default
    is all of them.
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
        # Only the broker's thread changes these. Other threads read a copy of `_calls`, which is
        # made in one step.
        self._calls: deque[_Call] = deque()
        self._bytes = 0
        # The number of the newest event. Events are counted from 1, including removed ones.
        self._newest = 0
        # The highest number that `clear` has removed.
        self._cleared = 0

    # ---- queries of tests ----------------------------------------------------------------------

    def events(self, *kinds: Kind, resource: str = EVERY, after: int = 0) -> list[Event]:
        """Return the events of these kinds; of all kinds if none is given.

        Args:
            *kinds: The kinds of events.
            resource: Name, id or pattern of their topic or subscription.
            after: Return only events with a higher number.
        """

        def is_wanted(kind: Kind, where: str) -> bool:
            return (not kinds or kind in kinds) and (resource == EVERY or matches(resource, where))

        return self.select(is_wanted, after=after)[0]

    def select(
        self,
        is_wanted: Callable[[Kind, str], bool],
        *,
        after: int = 0,
        limit: int | None = None,
    ) -> tuple[list[Event], int]:
        """Return the newest wanted events, oldest first, and the number of further wanted ones.

        The further events cost little, because no `Event` is built for them.

        Args:
            is_wanted: Decides by the kind, and by the full name of the topic or subscription.
            after: Consider only events with a higher number.
            limit: Maximum number of events to return; None for all.
        """
        found: list[tuple[int, _Call]] = []
        room = math.inf if limit is None else limit
        further = 0
        above = max(after, self._floor)
        for call in reversed(list(self._calls)):
            count = min(len(call.records), call.last - above)
            if count <= 0:
                break
            if not is_wanted(call.kind, call.resource):
                continue
            taken = int(min(count, room))
            room -= taken
            further += count - taken
            if taken:
                found.append((taken, call))
        events = [
            call.event(index)
            for taken, call in reversed(found)
            for index in range(len(call.records) - taken, len(call.records))
        ]
        return events, further

    def newest_first(
        self,
        is_wanted: Callable[[Kind, str], bool],
        *,
        after: int = 0,
        message_id: str = "",
    ) -> Iterator[Event]:
        """Yield the wanted events so far, newest first.

        Args:
            is_wanted: Decides by the kind, and by the full name of the topic or subscription.
            after: Consider only events with a higher number.
            message_id: Consider only events of messages with this id; empty for all.
        """
        seq = int(message_id) if message_id.isdecimal() else -1
        above = max(after, self._floor)
        for call in reversed(list(self._calls)):
            if call.last <= above:
                return
            if is_wanted(call.kind, call.resource):
                for index in range(len(call.records) - 1, max(above - call.first, -1), -1):
                    if not message_id or call.records[index].seq == seq:
                        yield call.event(index)

    @property
    def newest(self) -> int:
        """The number of the newest event; 0 if there was none."""
        return self._newest

    @property
    def oldest(self) -> int:
        """The number of the oldest event that is kept; one more than `newest` if none is kept."""
        calls = list(self._calls)
        first = calls[0].first if calls else self._newest + 1
        return max(first, self._floor + 1)

    @property
    def _floor(self) -> int:
        """The number up to which events do not count any more."""
        return max(self._newest - self.limit, self._cleared)

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
        """Remove all events. Their memory is released at the next event."""
        self._cleared = self._newest

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
        return self._add(Kind.PUBLISH, topic, records, size_of(records), (), (), 0, 0, "")

    def delivered(self, subscription: str, deliveries: Sequence[ObservedDelivery]) -> None:
        """Record one delivery for each message, with the client that got it."""
        self._outcome(Kind.DELIVERY, subscription, deliveries, detail=_client_of(deliveries))

    def acknowledged(self, subscription: str, deliveries: Sequence[ObservedDelivery]) -> None:
        """Record one ack for each message."""
        self._outcome(Kind.ACK, subscription, deliveries)

    def returned(
        self, subscription: str, deliveries: Sequence[ObservedDelivery], why: LeaseEnd
    ) -> None:
        """Record nacks, expiries or returns, with the number of the attempt that has ended."""
        kind, counted = _RETURNS[why]
        self._outcome(kind, subscription, deliveries, attempt=1 - counted)

    def extended(
        self, subscription: str, deliveries: Sequence[ObservedDelivery], seconds: int
    ) -> None:
        """Record one deadline change for each lease."""
        self._outcome(Kind.DEADLINE_CHANGE, subscription, deliveries, seconds=seconds)

    def dead_lettered(
        self, subscription: str, deliveries: Sequence[ObservedDelivery], topic: str
    ) -> None:
        """Record one dead letter for each message, with the number of the last attempt."""
        self._outcome(Kind.DEAD_LETTER, subscription, deliveries, attempt=0, detail=topic)

    def pushed(self, subscription: str, delivery: ObservedDelivery, answer: str) -> None:
        """Record the answer of a push endpoint. Called before the message is settled.

        Args:
            subscription: The subscription.
            delivery: The pushed message.
            answer: The answer, or the reason that there is none.
        """
        self._outcome(Kind.PUSH, subscription, [delivery], detail=answer)

    def finished(self, subscription: str, seqs: Collection[int]) -> None:
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
        detail: str = "",
    ) -> None:
        """Record events; `attempt` is the delivery attempt, relative to the failed ones."""
        if not self.limit:
            return self._tell()
        if len(deliveries) == 1:
            # Most calls have one message, and this is faster.
            (only,) = deliveries
            record, ack_ids = only.record, (only.ack_id,)
            return self._add(
                kind,
                subscription,
                (record,),
                record.size,
                ack_ids,
                (only.attempts,),
                attempt,
                seconds,
                detail,
            )
        if type(deliveries) is DeliverySpan:
            # Neither records nor texts are created for it: deliver and acknowledge would take 0.9
            # us longer for each message.
            return self._add(
                kind,
                subscription,
                deliveries.records,
                deliveries.size,
                deliveries.ack_ids,
                (0,) * len(deliveries),
                attempt,
                seconds,
                detail,
            )
        records = [each.record for each in deliveries]
        return self._add(
            kind,
            subscription,
            records,
            sum([record.size for record in records]),
            [each.ack_id for each in deliveries],
            [each.attempts for each in deliveries],
            attempt,
            seconds,
            detail,
        )

    def _add(
        self,
        kind: Kind,
        resource: str,
        records: Sequence[Record],
        size: int,
        ack_ids: Sequence[str],
        attempts: Sequence[int],
        more: int,
        seconds: int,
        detail: str,
    ) -> None:
        calls, first = self._calls, self._newest + 1
        self._newest = newest = first + len(records) - 1
        self._bytes += size
        now = self._clock.now()
        call = (first, newest, kind, now, resource, records, size, ack_ids, attempts)
        calls.append(_new_call((*call, more, seconds, detail)))
        floor = max(newest - self.limit, self._cleared)
        while calls[0].last <= floor:
            self._bytes -= calls.popleft().size
        while self._bytes > self._max_bytes and calls:
            self._drop_oldest()
        self._tell()

    def _drop_oldest(self) -> None:
        """Make room by removing the oldest call, or the oldest messages of the only call."""
        oldest = self._calls.popleft()
        self._bytes -= oldest.size
        if self._calls:
            return
        size, gone = oldest.size, 0
        while size > self._max_bytes:
            size -= oldest.records[gone].size
            gone += 1
        if gone < len(oldest.records):
            self._bytes = size
            self._calls.append(
                oldest._replace(
                    first=oldest.first + gone,
                    records=oldest.records[gone:],
                    size=size,
                    ack_ids=oldest.ack_ids[gone:],
                    attempts=oldest.attempts[gone:],
                )
            )

    def _tell(self) -> None:
        """Note a change, and wake waiting threads."""
        self._count += 1
        if self._waiting:
            with self._changed:
                self._changed.notify_all()


_RETURNS = {
    LeaseEnd.NACK: (Kind.NACK, 1),
    LeaseEnd.EXPIRED: (Kind.EXPIRY, 1),
    LeaseEnd.GIVEN_BACK: (Kind.RETURN, 0),
}


def _client_of(deliveries: Sequence[ObservedDelivery]) -> str:
    """Return the client that got these messages."""
    return deliveries.holder.client if type(deliveries) is DeliverySpan else deliveries[0].client


def _topic(events: Iterable[Event]) -> str:
    """Return the topic in which these events' message was published, if they include it."""
    return next((event.resource for event in events if event.kind is Kind.PUBLISH), "")
