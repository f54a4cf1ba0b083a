"""One feed: a topic seen as a log, of which the newest records are kept."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence
from itertools import accumulate

from emulator.engine import Record
from emulator.engine.log import Log
from emulator.engine.moment import Moment
from emulator.engine.timetable import TimedTask, Timetable
from protocol.errors import FailedPrecondition
from protocol.messages import feeds_pb2 as feeds

from .idempotency import IdempotencyKeys
from .listeners import Listeners
from .lost import Floors, Lost, LostRanges
from .observer import FeedObserver
from .settings import Settings
from .window import Window

# The reason in the ErrorInfo of a refusal.
TOPIC_FULL = "TOPIC_FULL"


class Feed(TimedTask):
    """A topic's window of records, up to where others were lost, and who waits for more.

    Owned by the engine's owner, as the topic is. The window holds records as subscriptions do: what
    it lets go of stays for those that still need it, and the other way round.

    Guarantees: numbers are given in order and never again; `earliest` and `head` never go back;
    a reader behind a loss is told of it by `gap`; what was deleted on purpose is gone silently and
    for good.

    Args:
        name: the topic's.
        log: of the topic; the feed begins at its head.
        epoch: of this life of the topic; no other has it.
        now: reads the clocks.
        timetable: where it announces when its oldest record is too old.
        observer: told of every change.
    """

    def __init__(
        self,
        name: str,
        log: Log,
        settings: Settings,
        epoch: int,
        *,
        now: Callable[[], Moment],
        timetable: Timetable,
        observer: FeedObserver,
    ) -> None:
        self.name = name
        self.epoch = epoch
        self.settings = settings
        self.floors = Floors(start=log.head_seq)
        self.keys = IdempotencyKeys(settings.idempotency_window)
        self.watchers = 0
        # The topic was deleted: there is nothing any more.
        self.is_closed = False
        self._log = log
        self._now = now
        self._timetable = timetable
        self._observer = observer
        self._window = Window(log.head_seq + 1)
        self._lost = LostRanges()
        self._listeners = Listeners()
        # Who is called whenever the feed grows, and when it is closed.
        self.listen = self._listeners.add
        self.ignore = self._listeners.remove

    # ---- what it has ---------------------------------------------------------------------------

    @property
    def head(self) -> int:
        """The newest number given; 0: none yet."""
        return self._log.head_seq

    @property
    def earliest(self) -> int:
        """The oldest number that can be read; head + 1 when nothing can."""
        return self._window.earliest

    @property
    def count(self) -> int:
        return self._window.count

    @property
    def bytes(self) -> int:
        return self._window.bytes

    @property
    def lost(self) -> Sequence[Lost]:
        """Numbers within the window of which readers are told that their records are lost."""
        return tuple(self._lost)

    def missing(self) -> Iterable[tuple[int, int]]:
        """First and last of all numbers above the floors that have no record, run by run."""
        if self.floors.highest + 1 < self.earliest:
            yield self.floors.highest + 1, self.earliest - 1
        yield from self._window.missing()

    def records(self) -> Iterable[Record]:
        """All that can be read, the oldest first."""
        return iter(self._window)

    def after(self, seq: int, limit: int) -> Sequence[Record]:
        """Up to `limit` records behind `seq`, none of which lies behind a gap.

        A reader asks for `gap` first. Both want what is too old to be gone: see `trim`.
        """
        records = self._window.after(seq, limit)
        next_lost = self._lost.next_first(seq)
        if next_lost is None:
            return records
        return records[: bisect_right(records, next_lost, key=lambda record: record.seq)]

    def examined(self, seq: int, records: Sequence[Record], limit: int) -> int:
        """Up to which number `after` looked: it returned `records` for these arguments."""
        if len(records) == limit:
            return records[-1].seq
        next_lost = self._lost.next_first(seq)
        return self.head if next_lost is None else next_lost - 1

    def gap(self, after: int) -> feeds.Gap | None:
        """What a reader that has everything up to `after` has lost right behind it, if anything."""
        if after < self.floors.highest:
            return self._gap(after + 1, self.earliest - 1, self.floors.reason(after))
        lost = self._lost.at(after + 1)
        return None if lost is None else self._gap(after + 1, lost.last, lost.reason)

    def recreated(self) -> feeds.Gap:
        """What a reader is told whose position is of another life of the topic.

        The range is that of this life's numbers that are lost already; it may be empty (to 0).
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
        self.trim(self._now())

    def admit(self, records: Sequence[Record]) -> None:
        """Refuse records for which there is no room, if the settings say so."""
        settings = self.settings
        if not settings.rejects:
            return
        count = self.count + len(records)
        size = self.bytes + sum(record.size for record in records)
        if count > settings.most_records or size > settings.most_bytes:
            raise FailedPrecondition(
                f"The topic {self.name} is full: it has {self.count} records of {self.bytes} "
                f"bytes, and may have {settings.cap_records or 'any number'} of "
                f"{settings.cap_bytes or 'any number of'} bytes. Nothing was appended.",
                reason=TOPIC_FULL,
            )

    def room_for(self, sizes: Sequence[int]) -> int:
        """How many records of these sizes, from the first on, would be admitted now."""
        settings = self.settings
        if not settings.rejects:
            return len(sizes)
        fitting = sum(self.bytes + total <= settings.most_bytes for total in accumulate(sizes))
        return max(0, min(fitting, settings.most_records - self.count))

    def hold(self, records: Sequence[Record]) -> None:
        for record in records:
            record.holders += 1
        self._window.append(records)

    def settle(self, records: Sequence[Record]) -> None:
        has_trimmed = self._enforce_caps()
        if self.settings.ttl:
            self._timetable.watch(self, self._now())
        self._listeners.wake_all()
        self._observer.appended(self, records)
        # Last: whoever learns of room may fill it at once.
        if has_trimmed:
            self._observer.trimmed(self)

    def reconfigured(self) -> None:
        self._observer.configured(self)

    def close(self) -> None:
        self.is_closed = True
        self._timetable.forget(self)
        self._timetable.forget(self.keys)
        self._log.release(list(self._window))
        self._window = Window(self.head + 1)
        self._lost.clear()
        self.keys.clear()
        self._listeners.wake_all()
        self._observer.closed(self)

    # ---- changes -------------------------------------------------------------------------------

    def configure(self, settings: Settings) -> None:
        """Take other settings; they hold for what is there, too."""
        now = self._now()
        self.settings = settings
        self.keys.window = settings.idempotency_window
        self._observer.configured(self)
        if self._enforce_caps():
            self._observer.trimmed(self)
        self.trim(now)
        self._timetable.watch(self, now)

    def delete(self, seqs: Iterable[int]) -> int:
        """Take records out for good; returns how many there were. No reader is told."""
        removed = self._window.remove(seqs)
        if removed:
            self._observer.deleted(self)
        if self._let_go(removed):
            self._observer.trimmed(self)
        return len(removed)

    def lose(self, count: int = 1) -> None:
        """Give numbers to what a router's source has lost, so that readers are told of it."""
        first = self.head + 1
        self._log.head_seq += count
        self._window.skip(count)
        self._lost.add(Lost(first, self.head, feeds.SOURCE_TRIM))
        self._lost.fold(self.earliest, self.floors)
        self._listeners.wake_all()
        self._observer.skipped(self, first, self.head)

    def restore(self, records: Sequence[Record], floors: Floors, lost: Sequence[Lost] = ()) -> None:
        """Take up what a former life of the broker kept, in a feed that is empty.

        The log must have its head already; it counts the records when everybody has his.
        """
        self.floors = floors
        self._lost = LostRanges(lost)
        self._window = Window(records[0].seq if records else self.head + 1)
        if records:
            self.hold(records)
        self._window.skip(self.head + 1 - self._window.end)
        self._lost.fold(self.earliest, self.floors)
        self._timetable.watch(self, self._now())

    # ---- limits --------------------------------------------------------------------------------

    def trim(self, now: Moment) -> None:
        """Let go of what is too old at this moment."""
        gone: list[Record] = []
        while (end := self._end_of_oldest()) is not None and end <= now.wall:
            gone.append(self._window.pop())
        if gone:
            self.floors.ttl = gone[-1].seq
            self._let_go(gone)
            self._observer.trimmed(self)

    def _enforce_caps(self) -> bool:
        """Let go of what is too much; tells whether anything was."""
        settings, window = self.settings, self._window
        if settings.rejects:
            # What it must not lose may come past it: dead letters, smaller caps.
            return False
        gone: list[Record] = []
        while window.count > settings.most_records or window.bytes > settings.most_bytes:
            gone.append(window.pop())
        if not gone:
            return False
        self.floors.cap = gone[-1].seq
        return self._let_go(gone)

    def _let_go(self, records: list[Record]) -> bool:
        self._log.release(records)
        self._lost.fold(self.earliest, self.floors)
        return bool(records)

    def _end_of_oldest(self) -> float | None:
        """The first moment at which the oldest record is too old."""
        oldest = self._window.oldest
        if oldest is None or not self.settings.ttl:
            return None
        return (oldest.publish_ms + self.settings.ttl + 1) / 1000

    def next_due(self, now: Moment) -> float | None:
        end = self._end_of_oldest()
        return None if end is None else now.due(end)

    def advance(self, now: Moment) -> None:
        self.trim(now)
