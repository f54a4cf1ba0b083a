"""Records that a feed has lost, and the reasons that readers are given."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from pullstream_protocol.messages import feeds_pb2 as feeds


class LossFloors:
    """The highest number lost for each reason; 0 if none.

    Records deleted on request have no floor, because readers see no gap for them. The arguments of
    the constructor are the attributes.

    Attributes:
        start: Published before the feed was created, or lost when an earlier broker ended.
        cap: Removed by a size limit.
        ttl: Expired.
        source: Lost by a router's source before they were forwarded; numbers without a record.
    """

    __slots__ = ("cap", "source", "start", "ttl")

    def __init__(self, start: int = 0, *, cap: int = 0, ttl: int = 0, source: int = 0) -> None:
        self.start = start
        self.cap = cap
        self.ttl = ttl
        self.source = source

    @property
    def highest(self) -> int:
        """The highest floor. A reader that has this number or a higher one has lost nothing."""
        return max(self.start, self.cap, self.ttl, self.source)

    def reason(self, after: int) -> feeds.GapReason:
        """Return why records after `after` are lost; `after` must be below `highest`."""
        by_cap, by_ttl, by_source = (f > after for f in (self.cap, self.ttl, self.source))
        if by_cap and by_ttl:
            return feeds.MIXED
        if by_cap:
            return feeds.CAP
        if by_ttl:
            return feeds.TTL
        return feeds.SOURCE_TRIM if by_source else feeds.FROM_SEQ_TOO_OLD


class LostRange(NamedTuple):
    """A range of numbers in the middle of the window whose records are lost, and the reason.

    SOURCE_TRIM: a router's source has lost the records. FROM_SEQ_TOO_OLD: the records were not on
    disk yet when a broker ended; a reader that reaches them was at an earlier position.

    Attributes:
        first: The first number.
        last: The last number.
        reason: SOURCE_TRIM or FROM_SEQ_TOO_OLD.
    """

    first: int
    last: int
    reason: feeds.GapReason


class LostRanges:
    """The lost ranges of one feed, in ascending order."""

    def __init__(self, ranges: Iterable[LostRange] = ()) -> None:
        self._ranges = list(ranges)

    def __iter__(self) -> Iterator[LostRange]:
        return iter(self._ranges)

    def __bool__(self) -> bool:
        return bool(self._ranges)

    def add(self, lost: LostRange) -> None:
        """Add the newest range; merge it with the one before if they touch."""
        before = self._ranges[-1] if self._ranges else None
        if before is not None and before.last == lost.first - 1 and before.reason == lost.reason:
            lost = LostRange(self._ranges.pop().first, lost.last, lost.reason)
        self._ranges.append(lost)

    def at(self, seq: int) -> LostRange | None:
        """Return the range that contains a number, if any."""
        index = self._index_after(seq) - 1
        return self._ranges[index] if index >= 0 and seq <= self._ranges[index].last else None

    def next_first(self, after: int) -> int | None:
        """Return the first number of the next range after `after`, if any."""
        index = self._index_after(after)
        return self._ranges[index].first if index < len(self._ranges) else None

    def fold(self, earliest: int, floors: LossFloors) -> None:
        """Turn ranges that are below the window into floors."""
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
        """Remove all ranges."""
        self._ranges.clear()

    def _index_after(self, seq: int) -> int:
        """Return the index of the first range that begins after `seq`."""
        return bisect_right(self._ranges, seq, key=lambda lost: lost.first)
