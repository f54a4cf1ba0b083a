"""One feed: a topic read as a log whose newest records are kept."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence
from itertools import accumulate

from pullstream_emulator.engine import Record
from pullstream_emulator.engine.log import Log
from pullstream_emulator.engine.now import Now
from pullstream_emulator.engine.seq_set import SeqSet, masks_of
from pullstream_emulator.engine.timetable import TimedTask, Timetable
from pullstream_protocol.errors import FailedPrecondition
from pullstream_protocol.messages import feeds_pb2 as feeds

from .gaps import LossFloors, LostRange, LostRanges
from .idempotency import IdempotencyKeys
from .settings import FeedSettings
from .window import Window

# The reason in the ErrorInfo of a refusal.
TOPIC_FULL = "TOPIC_FULL"


# Must only set a flag, because the engine calls it in the middle of its work.
Wake = Callable[[], None]


class Listeners:
    """A set of callables, called in the order in which they were added."""

    def __init__(self) -> None:
        self._wakes: dict[Wake, None] = {}

    def add(self, wake: Wake) -> None:
        """Add a callable at the end; one that is already in the set keeps its place."""
        self._wakes[wake] = None

    def remove(self, wake: Wake) -> None:
        """Remove a callable; unknown ones are ignored."""
        self._wakes.pop(wake, None)

    def wake_all(self) -> None:
        """Call all. A callable may remove itself or add others during the call."""
        for wake in tuple(self._wakes):
            wake()


class FeedObserver:
    """Notified of every change of a feed, in order, after the change.

    This class ignores all events; subclasses override the events they need. An observer may append
    to other feeds, because the feed has finished its own work when it calls.
    """

    def configured(self, feed: Feed) -> None:
        """A feed was created, or the settings of the feed or its topic were changed."""

    def appended(self, feed: Feed, records: Sequence[Record]) -> None:
        """Records were appended. Some may have left the window already, to make room."""

    def skipped(self, feed: Feed, first: int, last: int) -> None:
        """Sequence numbers were assigned to records that a router's source has lost.

        Args:
            feed: The feed.
            first: The first number.
            last: The last number.
        """

    def deleted(self, feed: Feed) -> None:
        """Records were deleted on request; `trimmed` is called next."""

    def trimmed(self, feed: Feed) -> None:
        """Records have left the window: the floors have moved, and there may be room for others."""

    def closed(self, feed: Feed) -> None:
        """The feed's topic was deleted."""


class Feed(TimedTask):
    """A topic's window of records, its gaps, and the readers that wait for more.

    Same owner as the topic: the owner of the engine. The window holds records in the same way as
    subscriptions do: a record that leaves the window stays in memory while a subscription needs
    it, and the reverse.

    Guarantees: sequence numbers are assigned in order and only once; `earliest` and `head` never
    decrease; `gap` reports every loss to a reader that is behind it; records deleted on request
    disappear for good and without a gap.

    Args:
        name: The name of the topic.
        log: The topic's log; the feed begins at its head.
        settings: Limits of the window.
        epoch: Identifies this incarnation of the topic; no other one has the same epoch.
        now: Reads the clocks.
        timetable: Due queue in which the expiry of the oldest record is registered.
        observer: Notified of every change.
    """

    def __init__(
        self,
        name: str,
        log: Log,
        settings: FeedSettings,
        epoch: int,
        *,
        now: Callable[[], Now],
        timetable: Timetable,
        observer: FeedObserver,
    ) -> None:
        self.name = name
        self.epoch = epoch
        self.settings = settings
        self.floors = LossFloors(start=log.head_seq)
        self.keys = IdempotencyKeys(settings.idempotency_window)
        self.watchers = 0
        # The topic was deleted, and the feed is empty for good.
        self.is_closed = False
        self._log = log
        self._now = now
        self._timetable = timetable
        self._observer = observer
        self._window = Window(log.head_seq + 1)
        self._lost = LostRanges()
        self._listeners = Listeners()
        # Listeners are called whenever the feed grows, and when it is closed.
        self.listen = self._listeners.add
        self.ignore = self._listeners.remove

    # ---- contents ------------------------------------------------------------------------------

    @property
    def head(self) -> int:
        """The newest sequence number; 0 if there is none yet."""
        return self._log.head_seq

    @property
    def earliest(self) -> int:
        """The oldest number that can be read; head + 1 if the window is empty."""
        return self._window.earliest

    @property
    def count(self) -> int:
        """Number of records in the window."""
        return self._window.count

    @property
    def bytes(self) -> int:
        """Size of the records in the window, in bytes."""
        return self._window.bytes

    @property
    def lost(self) -> Sequence[LostRange]:
        """Ranges within the window that readers see as gaps."""
        return tuple(self._lost)

    def missing(self) -> Iterable[tuple[int, int]]:
        """Yield first and last of every run of numbers above the floors that has no record."""
        if self.floors.highest + 1 < self.earliest:
            yield self.floors.highest + 1, self.earliest - 1
        yield from self._window.missing()

    def records(self) -> Iterable[Record]:
        """Return an iterator over all records of the window, oldest first."""
        return iter(self._window)

    def after(self, seq: int, limit: int) -> Sequence[Record]:
        """Return up to `limit` records after `seq`, but none after the next gap.

        A reader calls `gap` first. For both calls, expired records must be removed before: see
        `trim`.
        """
        records = self._window.after(seq, limit)
        next_lost = self._lost.next_first(seq)
        if next_lost is None:
            return records
        return records[: bisect_right(records, next_lost, key=lambda record: record.seq)]

    def kept_after(self, seq: int, limit: int) -> Sequence[Record]:
        """Return up to `limit` records after `seq`, regardless of gaps between them."""
        return self._window.after(seq, limit)

    def examined(self, seq: int, records: Sequence[Record], limit: int) -> int:
        """Return the last number that a call of `after` examined.

        Args:
            seq: The argument of `after`.
            records: The records that `after` returned.
            limit: The argument of `after`.
        """
        if len(records) == limit:
            return records[-1].seq
        next_lost = self._lost.next_first(seq)
        return self.head if next_lost is None else next_lost - 1

    def gap(self, after: int) -> feeds.Gap | None:
        """Return the gap directly after `after`, if any, for a reader with all records up to it."""
        if after < self.floors.highest:
            return self._gap(after + 1, self.earliest - 1, self.floors.reason(after))
        lost = self._lost.at(after + 1)
        return None if lost is None else self._gap(after + 1, lost.last, lost.reason)

    def recreated(self) -> feeds.Gap:
        """Return the gap for a reader whose position is of another incarnation of the topic.

        The range covers the lost numbers of the present incarnation. It may be empty (to_seq 0).
        """
        return self._gap(1, self.earliest - 1, feeds.RECREATED)

    def _gap(self, first: int, last: int, reason: feeds.GapReason) -> feeds.Gap:
        return feeds.Gap(
            topic=self.name,
            from_seq=first,
            to_seq=last,
            reason=reason,
            earliest_seq=self.earliest,
            head_seq=self.head,
        )

    # ---- as the topic's feed -------------------------------------------------------------------

    def prepare(self) -> None:
        """Remove expired records, so that they do not count against the limits of an append."""
        self.trim(self._now())

    def admit(self, records: Sequence[Record]) -> None:
        """Refuse records that do not fit, if the settings say so."""
        settings = self.settings
        if not settings.rejects:
            return
        count = self.count + len(records)
        size = self.bytes + sum(record.size for record in records)
        if count > settings.most_records or size > settings.most_bytes:
            raise FailedPrecondition(
                f"The topic {self.name} is full: it has {self.count} records with {self.bytes} "
                f"bytes; its limits are cap_records {settings.cap_records or 'none'} and cap_bytes "
                f"{settings.cap_bytes or 'none'}. Nothing was appended.",
                reason=TOPIC_FULL,
            )

    def room_for(self, sizes: Sequence[int]) -> int:
        """Return how many records of these sizes, counted from the first, would be admitted now."""
        settings = self.settings
        if not settings.rejects:
            return len(sizes)
        fitting = sum(self.bytes + total <= settings.most_bytes for total in accumulate(sizes))
        return max(0, min(fitting, settings.most_records - self.count))

    def keep(self, records: Sequence[Record]) -> None:
        """Append the records to the window, and hold them."""
        self._log.hold(masks_of([record.seq for record in records]))
        self._window.append(records)

    def enforce_limits(self, records: Sequence[Record]) -> None:
        """Remove records beyond the caps, wake the readers, and notify the observer."""
        has_trimmed = self._enforce_caps()
        if self.settings.ttl:
            self._timetable.watch(self, self._now())
        self._listeners.wake_all()
        self._observer.appended(self, records)
        # Last, because an observer that learns of free room may fill it at once.
        if has_trimmed:
            self._observer.trimmed(self)

    def reconfigured(self) -> None:
        """Notify the observer; the feed's own settings have not changed."""
        self._observer.configured(self)

    def close(self) -> None:
        """Release all records and keys, and wake the readers, which then see `is_closed`."""
        self.is_closed = True
        self._timetable.forget(self)
        self._timetable.forget(self.keys)
        self._log.release_later(SeqSet([record.seq for record in self._window]), self._now())
        self._window = Window(self.head + 1)
        self._lost.clear()
        self.keys.clear()
        self._listeners.wake_all()
        self._observer.closed(self)

    # ---- changes -------------------------------------------------------------------------------

    def configure(self, settings: FeedSettings) -> None:
        """Change the settings. They also apply to the records already in the window."""
        now = self._now()
        self.settings = settings
        self.keys.window = settings.idempotency_window
        self._observer.configured(self)
        if self._enforce_caps():
            self._observer.trimmed(self)
        self.trim(now)
        self._timetable.watch(self, now)

    def delete(self, seqs: Iterable[int]) -> int:
        """Remove records for good and return their number. Readers see no gap."""
        removed = self._window.remove(seqs)
        if removed:
            self.save()
        if self._release(removed):
            self._observer.trimmed(self)
        return len(removed)

    def save(self) -> None:
        """Let the observer persist all deletions up to now."""
        self._observer.deleted(self)

    def lose(self, count: int = 1) -> None:
        """Assign numbers to records that a router's source has lost, so that readers see a gap."""
        first = self.head + 1
        self._log.head_seq += count
        self._window.skip(count)
        self._lost.add(LostRange(first, self.head, feeds.SOURCE_TRIM))
        self._lost.fold(self.earliest, self.floors)
        self._listeners.wake_all()
        self._observer.skipped(self, first, self.head)

    def restore(
        self, records: Sequence[Record], floors: LossFloors, lost: Sequence[LostRange] = ()
    ) -> None:
        """Load the records that an earlier run of the broker has stored, into an empty feed.

        The log's head must be set before. The caller counts the records in the log when all are
        held.

        Args:
            records: The records of the window, in order.
            floors: The highest number removed for each cause.
            lost: Ranges that readers see as gaps.
        """
        self.floors = floors
        self._lost = LostRanges(lost)
        self._window = Window(records[0].seq if records else self.head + 1)
        if records:
            self.keep(records)
        self._window.skip(self.head + 1 - self._window.end)
        self._lost.fold(self.earliest, self.floors)
        self._timetable.watch(self, self._now())

    # ---- limits --------------------------------------------------------------------------------

    def trim(self, now: Now) -> None:
        """Remove the records that have expired by `now`."""
        gone: list[Record] = []
        while (end := self._end_of_oldest()) is not None and end <= now.wall:
            gone.append(self._window.pop())
        if gone:
            self.floors.ttl = gone[-1].seq
            self._release(gone)
            self._observer.trimmed(self)

    def _enforce_caps(self) -> bool:
        """Remove records above the limits; return whether any were removed."""
        settings, window = self.settings, self._window
        if settings.rejects:
            # Dead letters and lowered limits may exceed the limits; these records must not be lost.
            return False
        gone: list[Record] = []
        while window.count > settings.most_records or window.bytes > settings.most_bytes:
            gone.append(window.pop())
        if not gone:
            return False
        self.floors.cap = gone[-1].seq
        return self._release(gone)

    def _release(self, records: list[Record]) -> bool:
        self._log.release(masks_of([record.seq for record in records]))
        self._lost.fold(self.earliest, self.floors)
        return bool(records)

    def _end_of_oldest(self) -> float | None:
        """Return the wall-clock time at which the oldest record expires, in seconds."""
        oldest = self._window.oldest
        if oldest is None or not self.settings.ttl:
            return None
        return (oldest.publish_ms + self.settings.ttl + 1) / 1000

    def next_due(self, now: Now) -> float | None:
        """Return when the oldest record expires; None if no record expires."""
        end = self._end_of_oldest()
        return None if end is None else now.due(end)

    def advance(self, now: Now) -> None:
        """Remove the expired records."""
        self.trim(now)
