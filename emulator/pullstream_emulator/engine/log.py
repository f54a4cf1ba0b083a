"""The messages of one topic that are still needed, and the memory that they take.

Subscriptions, snapshots and the topic itself need records. Each adds a reference to each record
that it needs. A pin is a set of numbers, so a snapshot or a seek of a million messages costs no
loop. A record without a reference and without a pin is freed. The history of the log has only the
records that are kept for a later seek.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from operator import attrgetter

from .lowest import LowestNumber
from .now import Now
from .observer import Observer
from .record import Record, RecordRun
from .seq_set import CHUNK_BITS, SeqSet, SeqTable, masks_of
from .timetable import SlicedWork


class Usage:
    """The memory that an engine uses, in bytes.

    Attributes:
        bytes: Size of all kept messages, each counted once.
        watches: Size of the sessions of watches, and of unsent frames.
    """

    def __init__(self) -> None:
        self.bytes = 0
        self.watches = 0


class Log:
    """The records of one topic, from its creation until the last record has no reference.

    The log outlives its topic if subscriptions or snapshots do.

    Args:
        topic: The full name of the topic.
        usage: Counts the bytes of the records.
        observer: Is informed of records that are not kept any more.
        work: Does long work in slices.

    Attributes:
        head_seq: The newest sequence number.
        is_deleted: Whether the topic was deleted. A new topic may have its name.
        history: The records that are kept for a later seek, in ascending order.
        remembered: Their numbers.
        work: The argument of this name.
    """

    def __init__(self, topic: str, usage: Usage, observer: Observer, work: SlicedWork) -> None:
        self.topic = topic
        self.head_seq = 0
        self.is_deleted = False
        self.history: deque[Record] = deque()
        self.remembered = SeqSet()
        self.work = work
        self._usage = usage
        self._observer = observer
        # Requests for history, by requester: the seconds after the publish time, negative, or the
        # sequence number after which every message is kept.
        self._windows = LowestNumber()
        self._sinces = LowestNumber()
        # A message whose record was not created has its run.
        self._records: SeqTable[Record | RecordRun] = SeqTable()
        self._pins: dict[str, SeqSet] = {}
        self._discarded = 0

    # ---- held records --------------------------------------------------------------------------

    def append(self, run: RecordRun) -> None:
        """Add new records to the history, if history was requested."""
        if self._windows or self._sinces:
            self.history.extend(run.records)
            run.hold()
            self.remembered.add(run.masks)

    def count(self, records: Sequence[Record]) -> None:
        """Account for new records. Call it when all references and pins are added."""
        if type(records) is RecordRun:
            if records.is_held:
                seqs = range(records.first, records.last + 1)
                self._records.put_all(seqs, [records] * len(records))
                self._usage.bytes += records.size
            self._discard()
            return
        kept = [r for r in records if r.references or (self._pins and self._is_pinned(r.seq))]
        self._records.put_all([record.seq for record in kept], kept)
        self._usage.bytes += sum([record.size for record in kept])
        self._discard()

    def record(self, seq: int) -> Record | None:
        """Return a kept record by its number; None if it is not kept."""
        found = self._records.get(seq)
        if type(found) is RecordRun:
            # All records of the run, so that it does not keep the messages that are released.
            self._records.replace(found.first, found.records)
            return found[seq - found.first]
        return found

    def records(self, seqs: Sequence[int]) -> list[Record]:
        """Return the kept records among ascending numbers of one chunk."""
        found = self._records.get_all(seqs)
        if RecordRun not in set(map(type, found)):
            return found  # type: ignore[return-value]
        for run in {value for value in found if type(value) is RecordRun}:
            self._records.replace(run.first, run.records)
        return self._records.get_all(seqs)  # type: ignore[return-value]

    def release(self, records: Iterable[Record]) -> None:
        """Remove one reference from each of these records."""
        unheld: list[Record] = []
        for record in records:
            record.references -= 1
            if not record.references:
                unheld.append(record)
        self._free(unheld)

    def release_later(self, records: deque[Record], now: Now) -> None:
        """Remove one reference from each of these records, in slices if there are many."""

        def slices() -> Iterator[None]:
            while records:
                self.release([records.popleft() for _ in range(min(self.work.size, len(records)))])
                yield

        self.work.add(slices(), now.monotonic)

    def _free(self, unheld: Sequence[Record]) -> None:
        """Free the records without a reference, except pinned ones."""
        if self._pins:
            unheld = [record for record in unheld if not self._is_pinned(record.seq)]
        if unheld:
            self._records.remove([record.seq for record in unheld])
            self._usage.bytes -= sum([record.size for record in unheld])
            self._discard()

    def _discard(self) -> None:
        """Inform the observer up to which number no record is kept, if the number has changed."""
        first = self._records.first_chunk
        up_to = self.head_seq if first is None else (first << CHUNK_BITS) - 1
        if up_to > self._discarded:
            self._discarded = up_to
            if not self.is_deleted:
                self._observer.discarded(self.topic, up_to)

    # ---- pins ----------------------------------------------------------------------------------

    def pin(self, who: str, seqs: SeqSet, now: Now) -> None:
        """Keep exactly these records on behalf of `who`, instead of the ones before.

        Args:
            who: The full name of the resource that needs the records.
            seqs: The numbers of the records. The log does not change this set.
            now: The present time.
        """
        before = self._pins.pop(who, None)
        if seqs:
            self._pins[who] = seqs.copy()
        if before:
            self.work.add(self._unpinned(before - seqs), now.monotonic)

    def pinned(self, who: str) -> SeqSet:
        """Return the numbers of the records that `who` pins. The caller does not change them."""
        return self._pins.get(who) or SeqSet()

    def hold_pinned(self, who: str, records: Sequence[Record]) -> None:
        """Add a reference to each of these records that `who` pins, and end its pin."""
        pins = self._pins.get(who)
        if pins is None:
            return
        pinned = [record for record in records if record.seq in pins]
        for record in pinned:
            record.references += 1
        pins.discard(masks_of([record.seq for record in pinned]))
        if not pins:
            del self._pins[who]

    def _is_pinned(self, seq: int) -> bool:
        return any(seq in pins for pins in self._pins.values())

    def _unpinned(self, seqs: SeqSet) -> Iterator[None]:
        while seqs:
            some = self.records(seqs.pop_first(self.work.size))
            self._free([each for each in some if not each.references])
            yield

    # ---- history -------------------------------------------------------------------------------

    def keep_for(self, who: str, seconds: float | None) -> bool:
        """Keep messages for `seconds` after publishing, on behalf of `who`. None: stop.

        Returns:
            Whether `who` begins to keep messages, so that the history may lack some of them.
        """
        is_new = seconds is not None and who not in self._windows
        self._windows.put(who, None if seconds is None else -seconds)
        return is_new

    def keep_since(self, who: str, seq: int | None) -> None:
        """Keep every message after `seq`, on behalf of `who`. None: stop."""
        self._sinces.put(who, seq)

    def remember(self, seqs: SeqSet) -> None:
        """Add records to the history that were published before history was requested."""
        new = [r for seq in seqs - self.remembered if (r := self.record(seq)) is not None]
        for record in new:
            record.references += 1
        # Both parts are sorted, so this takes one pass.
        self.history = deque(sorted([*self.history, *new], key=attrgetter("seq")))
        self.remembered.add(masks_of([record.seq for record in new]))

    def restore(self, records: Sequence[Record], now: Now) -> None:
        """Restore all records of an earlier run. Call it when all references are added."""
        for record in records:
            record.references += 1
        self.history = deque(records)
        self.remembered = SeqSet([record.seq for record in records])
        self.count(records)
        self.trim(now)

    def trim(self, now: Now) -> None:
        """Release records of the history that are no longer requested, as many as fit in a slice.

        The next ones are due at once.
        """
        gone: list[Record] = []
        window, since = self._window, self._since
        while self.history and len(gone) < self.work.size:
            record = self.history[0]
            # The same expression as in `next_due`. After another rounding, a record that is due
            # would stay, and be due for ever.
            due = now.due(record.publish_ms / 1000 + window)
            if record.seq > since or due > now.monotonic:
                break
            gone.append(self.history.popleft())
        self.remembered.discard(masks_of([record.seq for record in gone]))
        self.release(gone)

    def next_due(self, now: Now) -> float | None:
        """Return the monotonic time at which the oldest record of the history becomes too old.

        A record that is kept for a snapshot does not become too old: the result is None.
        """
        if not self.history:
            return None
        oldest = self.history[0]
        if oldest.seq > self._since:
            return None
        return now.due(oldest.publish_ms / 1000 + self._window)

    @property
    def _window(self) -> float:
        """Seconds after publishing for which messages are kept."""
        longest = self._windows.lowest()
        return 0 if longest is None else -longest

    @property
    def _since(self) -> float:
        """The sequence number after which all messages are kept."""
        first = self._sinces.lowest()
        return self.head_seq if first is None else first

    # ---- times ---------------------------------------------------------------------------------

    def before(self, publish_ms: float) -> int:
        """Return the number that ends the kept records published before `publish_ms`."""
        return self.up_to(math.nextafter(publish_ms, -math.inf))

    def up_to(self, publish_ms: float) -> int:
        """Return the number that ends the kept records published at `publish_ms` or before.

        Publish times never go back, so every later record was published after this time.
        """
        last = 0
        for chunk, seq, newest in self._records.last_items():
            if newest.publish_ms > publish_ms:
                items = self._records.items(chunk)
                older = [seq for seq, record in items if record.publish_ms <= publish_ms]
                return older[-1] if older else last
            last = seq
        return last
