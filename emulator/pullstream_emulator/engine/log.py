"""The messages of one topic that are still needed, and the memory that they take.

Subscriptions, snapshots, the feed and the history of the log need messages. Each holds the messages
that it needs once. A message that nobody holds is freed. Holds are counted for sets of numbers, so
a snapshot or a seek of a million messages costs no loop, and a message needs no object to be held.
The history of the log has only the records that are kept for a later seek.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from operator import attrgetter

from .lowest import LowestNumber
from .now import Now
from .observer import Observer
from .record import Record, RecordRun, RecordSpan, size_of
from .seq_set import CHUNK_BITS, SeqCounts, SeqSet, SeqTable, masks_of
from .timetable import SlicedWork

# Most bytes of messages that are not kept any more but are in the same run as others that are.
_MOST_WASTED = 256 * 1024


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
        # How many hold each message.
        self._holds = SeqCounts()
        # A message whose record was not created has its run.
        self._records: SeqTable[Record | RecordRun] = SeqTable()
        # The runs of which some messages are kept: the number and size of the other messages.
        self._partly: dict[RecordRun, tuple[int, int]] = {}
        self._wasted = 0
        self._discarded = 0

    # ---- held messages -------------------------------------------------------------------------

    def append(self, run: RecordRun) -> None:
        """Add new records to the history, if history was requested."""
        if self._windows or self._sinces:
            self.history.extend(run.records)
            self.hold(run.masks)
            self.remembered.add(run.masks)

    def hold(self, masks: Mapping[int, int], times: int = 1) -> None:
        """Hold messages, so that they are kept until they are released as many times.

        Args:
            masks: The bits of their numbers, by chunk.
            times: The number of holders.
        """
        self._holds.add(masks, times)

    def count(self, records: Sequence[Record], *, are_held: bool = False) -> None:
        """Keep and account for the new records that are held. Call it when all are held.

        Args:
            records: The records.
            are_held: Whether all of them are known to be held.
        """
        if not are_held:
            masks = records.masks if type(records) is RecordRun else masks_of(_seqs_of(records))
            held = self._holds.counted(masks)
            if held != masks:
                among = SeqSet.of(held)
                records = [record for record in records if record.seq in among]
        if type(records) is RecordRun:
            self._records.put_all(records.seqs, [records] * len(records))
        else:
            self._records.put_all(_seqs_of(records), records)
        self._usage.bytes += size_of(records)
        self._discard()

    def record(self, seq: int) -> Record | None:
        """Return a kept record by its number; None if it is not kept."""
        found = self._records.get(seq)
        if type(found) is RecordRun:
            # All records of the run, so that it does not keep the messages that are released.
            self._replace(found)
            return found[seq - found.first]
        return found

    def records(self, seqs: Sequence[int]) -> list[Record]:
        """Return the kept records among ascending numbers of one chunk."""
        found = self._records.get_all(seqs)
        if RecordRun not in set(map(type, found)):
            return found  # type: ignore[return-value]
        for run in {value for value in found if type(value) is RecordRun}:
            self._replace(run)
        return self._records.get_all(seqs)  # type: ignore[return-value]

    def span(self, seqs: range) -> RecordSpan:
        """Return kept messages with consecutive numbers, without creating their records."""
        pieces: list[tuple[Sequence[Record], int, int]] = []
        single: list[Record] = []
        seq = seqs.start
        while seq < seqs.stop:
            found = self._records.get(seq)
            if type(found) is RecordRun:
                stop = min(found.last + 1, seqs.stop)
                pieces.append((found, seq - found.first, stop - found.first))
                seq, single = stop, []
                continue
            assert found is not None
            if not single:
                pieces.append((single, 0, 0))
            single.append(found)
            pieces[-1] = (single, 0, len(single))
            seq += 1
        return RecordSpan(pieces)

    def publish_ms(self, seq: int) -> int | None:
        """Return the publish time of a kept message, without creating its record."""
        found = self._records.get(seq)
        return None if found is None else found.publish_ms

    def release(self, masks: Mapping[int, int]) -> None:
        """End one hold of each of these messages, given as the bits of their numbers by chunk."""
        unheld = self._holds.subtract(masks)
        if unheld:
            for first, values in self._records.remove(unheld):
                self._free(first, values)
            self._discard()

    def release_later(self, seqs: SeqSet, now: Now) -> None:
        """End one hold of each of these messages, in slices if there are many.

        Args:
            seqs: The messages. The log empties this set.
            now: The present time.
        """

        def slices() -> Iterator[None]:
            while seqs:
                self.release(masks_of(seqs.pop_first(self.work.size)))
                yield

        self.work.add(slices(), now.monotonic)

    def _free(self, seq: int, values: Sequence[Record | RecordRun | None]) -> None:
        """Account for messages that are not kept any more.

        Args:
            seq: The first number.
            values: The former values of this number and of the following ones.
        """
        at = 0
        while at < len(values):
            freed = values[at]
            if type(freed) is not RecordRun:
                self._usage.bytes -= 0 if freed is None else freed.size
                at += 1
                continue
            start = seq + at - freed.first
            part = min(len(freed) - start, len(values) - at)
            size = freed.size if part == len(freed) else freed.size_of(start, start + part)
            self._usage.bytes -= size
            self._waste(freed, part, size)
            at += part

    def _waste(self, run: RecordRun, count: int, size: int) -> None:
        """Note that a run has bytes of messages that are not kept any more.

        The run has the bytes of all its messages until none of them is kept. If all runs have many
        bytes too much, the oldest are replaced by the records of the messages that are kept.
        """
        wasted_count, wasted = self._partly.pop(run, (0, 0))
        if wasted_count + count == len(run):
            self._wasted -= wasted
            return
        self._partly[run] = wasted_count + count, wasted + size
        self._wasted += size
        while self._wasted > _MOST_WASTED:
            oldest = next(iter(self._partly))
            self._replace(oldest)

    def _replace(self, run: RecordRun) -> None:
        """Replace a run by the records of its messages that are kept."""
        self._wasted -= self._partly.pop(run, (0, 0))[1]
        self._records.replace(run, run.first, run.records)

    def _discard(self) -> None:
        """Inform the observer up to which number no record is kept, if the number has changed."""
        first = self._records.first_chunk
        up_to = self.head_seq if first is None else (first << CHUNK_BITS) - 1
        if up_to > self._discarded:
            self._discarded = up_to
            if not self.is_deleted:
                self._observer.discarded(self.topic, up_to)

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
        self.hold(masks_of(_seqs_of(new)))
        # Both parts are sorted, so this takes one pass.
        self.history = deque(sorted([*self.history, *new], key=attrgetter("seq")))
        self.remembered.add(masks_of(_seqs_of(new)))

    def restore(self, records: Sequence[Record], now: Now) -> None:
        """Restore all records of an earlier run. Call it when all are held."""
        self.history = deque(records)
        self.remembered = SeqSet(_seqs_of(records))
        self.hold(self.remembered.masks())
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
        masks = masks_of(_seqs_of(gone))
        self.remembered.discard(masks)
        self.release(masks)

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


def _seqs_of(records: Iterable[Record]) -> list[int]:
    return [record.seq for record in records]
