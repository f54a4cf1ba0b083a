"""The messages of one topic that are still needed, and the memory that they take.

Subscriptions, snapshots and the topic itself hold records. A record without a holder is freed. The
history of the log has only the records that are kept for a later seek.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Iterable, Sequence

from .due_queue import Now
from .observer import Observer
from .record import Record

# Records are counted in segments of 2 ** _SEGMENT_BITS sequence numbers, so that the oldest kept
# record is found without a search through all records.
_SEGMENT_BITS = 10


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
    """The records of one topic, from its creation until the last record has no holder.

    The log outlives its topic if subscriptions or snapshots do.
    """

    def __init__(self, topic: str, usage: Usage, observer: Observer | None) -> None:
        self.topic = topic
        self.head_seq = 0
        # The topic was deleted: a new topic may have its name.
        self.is_deleted = False
        self.history: deque[Record] = deque()
        self._usage = usage
        self._observer = observer
        # Requests for history, by requester: seconds after the publish time, or the sequence number
        # after which every message is kept.
        self._windows: dict[str, float] = {}
        self._sinces: dict[str, int] = {}
        self._live: dict[int, int] = {}
        self._discarded = 0

    # ---- held records --------------------------------------------------------------------------

    def append(self, records: Iterable[Record]) -> None:
        """Add new records to the history, if history was requested."""
        if self._windows or self._sinces:
            for record in records:
                record.holders += 1
                self.history.append(record)

    def count(self, records: Sequence[Record]) -> None:
        """Account for new records. Call it when all their holders hold them."""
        live, size = self._live, 0
        for record in records:
            if record.holders:
                size += record.size
                segment = record.seq >> _SEGMENT_BITS
                live[segment] = live.get(segment, 0) + 1
        self._usage.bytes += size
        self._discard()

    def release(self, records: Iterable[Record]) -> None:
        """Remove one holder from each of these records."""
        # Most records come in runs within one segment. A run is counted together.
        size, segment, count = 0, -1, 0
        for record in records:
            holders = record.holders = record.holders - 1
            if holders:
                continue
            size += record.size
            if record.seq >> _SEGMENT_BITS != segment:
                self._forget(segment, count)
                segment, count = record.seq >> _SEGMENT_BITS, 0
            count += 1
        self._forget(segment, count)
        self._usage.bytes -= size

    def _forget(self, segment: int, count: int) -> None:
        """Subtract `count` freed records from a segment."""
        if not count:
            return
        self._live[segment] -= count
        if not self._live[segment]:
            del self._live[segment]
            self._discard()

    def _discard(self) -> None:
        """Inform the observer up to which number no record is kept, if the number has changed."""
        # Segments come in ascending order, so the first one holds the oldest record.
        first = next(iter(self._live), None)
        up_to = self.head_seq if first is None else (first << _SEGMENT_BITS) - 1
        if up_to > self._discarded:
            self._discarded = up_to
            if self._observer is not None and not self.is_deleted:
                self._observer.discarded(self.topic, up_to)

    # ---- history -------------------------------------------------------------------------------

    def keep_for(self, who: str, seconds: float | None) -> bool:
        """Keep messages for `seconds` after publishing, on behalf of `who`. None: stop.

        Returns:
            Whether `who` begins to keep messages, so that the history may lack some of them.
        """
        is_new = seconds is not None and who not in self._windows
        self._windows.pop(who, None)
        if seconds is not None:
            self._windows[who] = seconds
        return is_new

    def keep_since(self, who: str, seq: int | None) -> None:
        """Keep every message after `seq`, on behalf of `who`. None: stop."""
        self._sinces.pop(who, None)
        if seq is not None:
            self._sinces[who] = seq

    def remember(self, records: Iterable[Record]) -> None:
        """Add records to the history that were published before history was requested."""
        known = {record.seq for record in self.history}
        new = sorted((r for r in records if r.seq not in known), key=lambda r: r.seq)
        for record in new:
            record.holders += 1
        self.history = deque(heapq.merge(self.history, new, key=lambda r: r.seq))

    def restore(self, records: Sequence[Record], now: Now) -> None:
        """Restore all records of an earlier run. Call it when all their holders hold them."""
        for record in records:
            record.holders += 1
        self.history = deque(records)
        self.count(records)
        self.trim(now)

    def trim(self, now: Now) -> None:
        """Release the records of the history that are no longer requested."""
        gone: list[Record] = []
        window = max(self._windows.values(), default=0) * 1000
        since = min(self._sinces.values(), default=self.head_seq)
        now_ms = now.wall * 1000
        while self.history:
            record = self.history[0]
            if record.seq > since or record.publish_ms + window > now_ms:
                break
            gone.append(self.history.popleft())
        self.release(gone)

    def next_due(self, now: Now) -> float | None:
        """Return the monotonic time at which the oldest record of the history becomes too old.

        A record that is kept for a snapshot does not become too old: the result is None.
        """
        if not self.history:
            return None
        oldest = self.history[0]
        if oldest.seq > min(self._sinces.values(), default=self.head_seq):
            return None
        return now.due(oldest.publish_ms / 1000 + max(self._windows.values(), default=0))
