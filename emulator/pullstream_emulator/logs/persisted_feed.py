"""Persisted state of a feed, and recovery of a feed from it."""

from __future__ import annotations

import struct
from array import array
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from pullstream_protocol.messages import feeds_pb2 as feeds

from .gaps import LossFloors, LostRange

if TYPE_CHECKING:
    from pullstream_emulator.engine import Record

# Start of an encoded value: the epoch, the head, and the length of the settings in bytes.
_HEAD = struct.Struct("<QQQ")

# First and last of consecutive sequence numbers.
Run = tuple[int, int]


class FeedValue(NamedTuple):
    """Persisted state that changes only on request.

    Attributes:
        config: The settings.
        epoch: The epoch of the topic.
        head: The newest sequence number at the time of saving.
        silent: Ranges within the window that have no record and cause no gap: their records were
            deleted on request, or the numbers were never assigned.
    """

    config: feeds.FeedConfig
    epoch: int
    head: int = 0
    silent: Sequence[Run] = ()

    def encode(self) -> bytes:
        """Return the bytes that `decode` reads."""
        config = self.config.SerializeToString()
        head = _HEAD.pack(self.epoch, self.head, len(config))
        return head + config + _numbers(*self.silent)

    @staticmethod
    def decode(value: bytes) -> FeedValue:
        """Return the value that `encode` has written."""
        epoch, head, size = _HEAD.unpack_from(value)
        end = _HEAD.size + size
        config = feeds.FeedConfig.FromString(value[_HEAD.size : end])
        return FeedValue(config, epoch, head, list(zip(*_by(2, value[end:]), strict=True)))


class FeedNote(NamedTuple):
    """Persisted state that changes with every message. It may be slightly older than the value.

    Attributes:
        floors: The highest number removed for each cause.
        lost: Ranges that readers see as gaps.
    """

    floors: LossFloors
    lost: Sequence[LostRange] = ()

    def encode(self) -> bytes:
        """Return the bytes that `decode` reads; never empty."""
        floors = self.floors
        return _numbers((floors.start, floors.cap, floors.ttl, floors.source), *self.lost)

    @staticmethod
    def decode(note: bytes) -> FeedNote:
        """Decode a note. No bytes, which means that the note was lost, give an empty note."""
        if not note:
            return FeedNote(LossFloors(0))
        start, cap, ttl, source = array("Q", note[:32])
        lost = [LostRange(*each) for each in zip(*_by(3, note[32:]), strict=True)]
        return FeedNote(LossFloors(start, cap=cap, ttl=ttl, source=source), lost)


class RecoveredFeed(NamedTuple):
    """State of a feed after recovery.

    Attributes:
        records: The records of the window, in order.
        floors: The highest number removed for each cause.
        lost: Ranges that readers see as gaps.
        silent: Ranges without a gap; the value's `silent` from now on.
    """

    records: Sequence[Record]
    floors: LossFloors
    lost: Sequence[LostRange]
    silent: Sequence[Run]


def recovered_feed(
    value: FeedValue,
    note: FeedNote,
    records: Mapping[int, Record],
    head: int,
    *,
    all_was_kept: bool,
) -> RecoveredFeed:
    """Find the records of the window, and the gaps that readers must see.

    A number that neither a record nor a saved range accounts for belonged to a message that was
    lost when the broker crashed. Numbers after the last known one may or may not have been
    assigned. With `all_was_kept` no append was answered before it was stored, so nobody misses
    these numbers. That holds only for numbers above the value's head: lower ones may date from
    before the topic got its present durability class.

    Args:
        value: The persisted value.
        note: The persisted note.
        records: The stored records, by sequence number.
        head: The newest number that may have been assigned.
        all_was_kept: Every append was stored before it was answered.
    """
    floor = note.floors.highest
    silent = [run for run in value.silent if run[1] > floor]
    gone = _merged(silent)
    kept = [r for seq, r in sorted(records.items()) if seq > floor and not _is_in(gone, seq)]
    known = _merged([*_runs(kept), *silent, *((lost.first, lost.last) for lost in note.lost)])
    end = max(floor, known[-1][1] if known else 0)
    holes = list(_between(floor, known))
    missed = max(end, value.head) if all_was_kept else head
    if end < missed:
        holes.append((end + 1, missed))
    if missed < head:
        silent.append((missed + 1, head))
    reported = [LostRange(first, last, feeds.FROM_SEQ_TOO_OLD) for first, last in holes]
    return RecoveredFeed(kept, note.floors, sorted([*note.lost, *reported]), silent)


def _runs(records: Iterable[Record]) -> Iterator[Run]:
    first = last = 0
    for record in records:
        if record.seq != last + 1:
            if last:
                yield first, last
            first = record.seq
        last = record.seq
    if last:
        yield first, last


def _merged(runs: Iterable[Run]) -> Sequence[Run]:
    """Return the runs in ascending order, with touching and overlapping runs merged."""
    merged: list[Run] = []
    for first, last in sorted(runs):
        if merged and first <= merged[-1][1] + 1:
            merged[-1] = (merged[-1][0], max(last, merged[-1][1]))
        else:
            merged.append((first, last))
    return merged


def _is_in(merged: Sequence[Run], seq: int) -> bool:
    before = bisect_right(merged, seq, key=lambda run: run[0])
    return before > 0 and seq <= merged[before - 1][1]


def _between(floor: int, known: Iterable[Run]) -> Iterator[Run]:
    """Yield the numbers above `floor` and below the end of the last run that are in no run."""
    end = floor
    for first, last in known:
        if first > end + 1:
            yield end + 1, first - 1
        end = max(end, last)


def _numbers(*groups: Iterable[int]) -> bytes:
    return array("Q", (number for group in groups for number in group)).tobytes()


def _by(count: int, data: bytes) -> Sequence[array[int]]:
    numbers = array("Q", data)
    return [numbers[start::count] for start in range(count)]
