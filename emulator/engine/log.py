"""The messages of one topic that somebody still needs, and how much memory they take.

Subscriptions, snapshots and the topic itself hold records; a record that nobody holds any more is
gone. Only what is kept for a later seek stands in the log's own history.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Iterable, Sequence

from .moment import Moment
from .observer import Observer
from .record import Record

# Records are counted by segments of their sequence numbers, 2 to this power in each, so that the
# oldest kept one is found without looking at each.
_SEGMENT_BITS = 10


class Usage:
    """Bytes of all kept messages of an engine, each counted once."""

    def __init__(self) -> None:
        self.bytes = 0


class Log:
    """The records of one topic, from its creation until the last holder of one is gone.

    It outlives the topic if subscriptions or snapshots do.
    """

    def __init__(self, topic: str, usage: Usage, observer: Observer | None) -> None:
        self.topic = topic
        self.head_seq = 0
        # The topic was deleted: a new one may bear its name.
        self.is_deleted = False
        self.history: deque[Record] = deque()
        self._usage = usage
        self._observer = observer
        # Who wants history: for so many seconds after publish, or everything after a message.
        self._windows: dict[str, float] = {}
        self._sinces: dict[str, int] = {}
        self._live: dict[int, int] = {}
        self._discarded = 0

    # ---- what is held --------------------------------------------------------------------------

    def append(self, records: Iterable[Record]) -> None:
        """Take new records into the history, if anybody wants one."""
        if self._windows or self._sinces:
            for record in records:
                record.holders += 1
                self.history.append(record)

    def count(self, records: Sequence[Record]) -> None:
        """Account for new records, once everybody who wants them holds them."""
        live, size = self._live, 0
        for record in records:
            if record.holders:
                size += record.size
                segment = record.seq >> _SEGMENT_BITS
                live[segment] = live.get(segment, 0) + 1
        self._usage.bytes += size
        self._discard()

    def release(self, records: Iterable[Record]) -> None:
        """One holder lets go of some records."""
        # Most come in runs of one segment: those are counted together.
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
        """So many records of a segment are gone."""
        if not count:
            return
        self._live[segment] -= count
        if not self._live[segment]:
            del self._live[segment]
            self._discard()

    def _discard(self) -> None:
        """Tell up to where nothing is kept, if that has moved."""
        # Segments come in ascending order, so the first one holds the oldest record.
        first = next(iter(self._live), None)
        up_to = self.head_seq if first is None else (first << _SEGMENT_BITS) - 1
        if up_to > self._discarded:
            self._discarded = up_to
            if self._observer is not None and not self.is_deleted:
                self._observer.discarded(self.topic, up_to)

    # ---- history -------------------------------------------------------------------------------

    def keep_for(self, who: str, seconds: float | None) -> None:
        """Keep messages so long after their publishing, on behalf of `who`; None: no more."""
        self._windows.pop(who, None)
        if seconds is not None:
            self._windows[who] = seconds

    def keep_since(self, who: str, seq: int | None) -> None:
        """Keep every message after `seq` on behalf of `who`; None: no more."""
        self._sinces.pop(who, None)
        if seq is not None:
            self._sinces[who] = seq

    def remember(self, records: Iterable[Record]) -> None:
        """Take records into the history that were published before anybody wanted one."""
        known = {record.seq for record in self.history}
        new = sorted((r for r in records if r.seq not in known), key=lambda r: r.seq)
        for record in new:
            record.holders += 1
        self.history = deque(heapq.merge(self.history, new, key=lambda r: r.seq))

    def restore(self, records: Sequence[Record], now: Moment) -> None:
        """Take back all records of a former life, when everybody holds what they want of them."""
        for record in records:
            record.holders += 1
        self.history = deque(records)
        self.count(records)
        self.trim(now)

    def trim(self, now: Moment) -> None:
        """Let go of the history that nobody wants any more."""
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

    def next_due(self, now: Moment) -> float | None:
        """When the oldest of the history becomes too old; a snapshot's has no such moment."""
        if not self.history:
            return None
        oldest = self.history[0]
        if oldest.seq > min(self._sinces.values(), default=self.head_seq):
            return None
        return now.due(oldest.publish_ms / 1000 + max(self._windows.values(), default=0))
