"""What a feed has lost, and what a reader is told who comes to it."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from protocol.messages import feeds_pb2 as feeds


class Floors:
    """The highest number that was lost for each reason; 0: none.

    start: what was published before there was a feed, or was lost with an earlier broker.
    cap: what left for room. ttl: for its age.
    source: what a router's source had lost before it was forwarded: numbers without a record.

    What was deleted on purpose has no floor: nobody is told of it.
    """

    __slots__ = ("cap", "source", "start", "ttl")

    def __init__(self, start: int = 0, *, cap: int = 0, ttl: int = 0, source: int = 0) -> None:
        self.start = start
        self.cap = cap
        self.ttl = ttl
        self.source = source

    @property
    def highest(self) -> int:
        """A reader that has this number, or a higher one, has lost nothing below."""
        return max(self.start, self.cap, self.ttl, self.source)

    def reason(self, after: int) -> feeds.GapReason:
        """Why the records that follow `after` are lost, some of which are."""
        by_cap, by_ttl, by_source = (f > after for f in (self.cap, self.ttl, self.source))
        if by_cap and by_ttl:
            return feeds.MIXED
        if by_cap:
            return feeds.CAP
        if by_ttl:
            return feeds.TTL
        return feeds.SOURCE_TRIM if by_source else feeds.FROM_SEQ_TOO_OLD


class Lost(NamedTuple):
    """Numbers in the middle of the window without a record, and why: from first to last.

    SOURCE_TRIM: they stand for what a router's source has lost. FROM_SEQ_TOO_OLD: they were not on
    disk yet when a broker ended; a reader that comes to them was there before.
    """

    first: int
    last: int
    reason: feeds.GapReason


class LostRanges:
    """Those of one feed, in ascending order."""

    def __init__(self, ranges: Iterable[Lost] = ()) -> None:
        self._ranges = list(ranges)

    def __iter__(self) -> Iterator[Lost]:
        return iter(self._ranges)

    def __bool__(self) -> bool:
        return bool(self._ranges)

    def add(self, lost: Lost) -> None:
        """The newest numbers."""
        before = self._ranges[-1] if self._ranges else None
        if before is not None and before.last == lost.first - 1 and before.reason == lost.reason:
            lost = Lost(self._ranges.pop().first, lost.last, lost.reason)
        self._ranges.append(lost)

    def at(self, seq: int) -> Lost | None:
        """The range that a number is in."""
        index = self._index_after(seq) - 1
        return self._ranges[index] if index >= 0 and seq <= self._ranges[index].last else None

    def next_first(self, after: int) -> int | None:
        """Where the next range behind a number begins."""
        index = self._index_after(after)
        return self._ranges[index].first if index < len(self._ranges) else None

    def fold(self, earliest: int, floors: Floors) -> None:
        """Ranges that the window has left behind become a floor."""
        left = 0
        for lost in self._ranges:
            if lost.last >= earliest:
                break
            left += 1
            if lost.reason == feeds.SOURCE_TRIM:
                floors.source = lost.last
            else:
                floors.start = lost.last
        del self._ranges[:left]

    def clear(self) -> None:
        self._ranges.clear()

    def _index_after(self, seq: int) -> int:
        """That of the first range that begins behind a number."""
        return bisect_right(self._ranges, seq, key=lambda lost: lost.first)
