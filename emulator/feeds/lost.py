"""Numbers in the middle of a feed's window that have no record, of which readers are told."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from protocol.messages import feeds_pb2 as feeds

from .floors import Floors


class Lost(NamedTuple):
    """Numbers without a record, and why: from first to last.

    SOURCE_TRIM: they stand for what a router's source has lost. FROM_SEQ_TOO_OLD: they were not on
    disk yet when a broker ended; a reader that comes to them was there before.
    """

    first: int
    last: int
    reason: feeds.GapReason


class LostRanges:
    """Those of one feed, in ascending order. They are few, as each takes a loss."""

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
        return next((lost for lost in self._ranges if lost.first <= seq <= lost.last), None)

    def next_first(self, after: int) -> int | None:
        """Where the next range behind a number begins."""
        return next((lost.first for lost in self._ranges if lost.first > after), None)

    def fold(self, earliest: int, floors: Floors) -> None:
        """Ranges that the window has left behind become a floor."""
        while self._ranges and self._ranges[0].last < earliest:
            lost = self._ranges.pop(0)
            if lost.reason == feeds.SOURCE_TRIM:
                floors.source = lost.last
            else:
                floors.start = lost.last

    def clear(self) -> None:
        self._ranges.clear()
