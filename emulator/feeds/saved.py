"""What storage keeps of a feed, and what a feed is rebuilt from."""

from __future__ import annotations

import struct
from array import array
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from protocol.messages import feeds_pb2 as feeds

from .lost import Floors, Lost

if TYPE_CHECKING:
    from emulator.engine import Record

# Of a value: the epoch, the head, and how long the settings are.
_HEAD = struct.Struct("<QQQ")

# First and last of consecutive numbers.
Run = tuple[int, int]


class FeedValue(NamedTuple):
    """What changes when somebody asks for it.

    head: the newest number that was given by then.
    silent: numbers within the window that have no record and whose readers are told nothing:
        deleted on purpose, or never given to anybody.
    """

    config: feeds.FeedConfig
    epoch: int
    head: int = 0
    silent: Sequence[Run] = ()

    def encode(self) -> bytes:
        config = self.config.SerializeToString()
        head = _HEAD.pack(self.epoch, self.head, len(config))
        return head + config + _numbers(*self.silent)

    @staticmethod
    def decode(value: bytes) -> FeedValue:
        epoch, head, size = _HEAD.unpack_from(value)
        end = _HEAD.size + size
        config = feeds.FeedConfig.FromString(value[_HEAD.size : end])
        return FeedValue(config, epoch, head, list(zip(*_by(2, value[end:]), strict=True)))


class FeedNote(NamedTuple):
    """What changes as messages come and go. It may be a moment older than the rest."""

    floors: Floors
    lost: Sequence[Lost] = ()

    def encode(self) -> bytes:
        floors = self.floors
        return _numbers((floors.start, floors.cap, floors.ttl, floors.source), *self.lost)

    @staticmethod
    def decode(note: bytes) -> FeedNote:
        start, cap, ttl, source = array("Q", note[:32])
        lost = [Lost(*each) for each in zip(*_by(3, note[32:]), strict=True)]
        return FeedNote(Floors(start, cap=cap, ttl=ttl, source=source), lost)


class Remains(NamedTuple):
    """What is left of a feed. `silent` is that of its value from now on."""

    records: Sequence[Record]
    floors: Floors
    lost: Sequence[Lost]
    silent: Sequence[Run]


def remains(
    value: FeedValue,
    note: FeedNote,
    records: Mapping[int, Record],
    head: int,
    *,
    all_was_kept: bool,
) -> Remains:
    """Of the records that there are, those of the window; and what a reader is to be told.

    A number that nothing accounts for had a message that was lost with the broker. The numbers
    behind all that is known may have been given out or not: with `all_was_kept` nothing was
    answered that is not there, so nobody misses them. That holds for those above the value's head
    only: the others may be from before the topic was given its class.

    head: the newest number that may have been given.
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
    told = [Lost(first, last, feeds.FROM_SEQ_TOO_OLD) for first, last in holes]
    return Remains(kept, note.floors, sorted([*note.lost, *told]), silent)


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
    """In ascending order, those that touch as one."""
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
    """The numbers above a floor and below the last of some runs that are in none."""
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
