"""The records that a feed keeps, by sequence number."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence

from pullstream_emulator.engine import Record

# Placeholder for a removed record, so that the list does not keep the record in memory.
_LEFT = Record(0, "", b"", 0)

# The list is not compacted while it has at most this many placeholders.
_FEW = 1024


class Window:
    """Records in the order of their sequence numbers, with possible holes.

    Placeholders at the front are removed many at a time, so that taking the oldest record costs
    almost nothing, independent of their number. Numbers without a record occupy no place.

    Attributes:
        end: The number of the next record.
        bytes: Size of all records.
    """

    def __init__(self, end: int) -> None:
        self.end = end
        self.bytes = 0
        # Records start at _first; the places before it are placeholders.
        self._records: list[Record] = []
        self._first = 0

    def __iter__(self) -> Iterator[Record]:
        return (self._records[index] for index in range(self._first, len(self._records)))

    @property
    def count(self) -> int:
        """Number of records."""
        return len(self._records) - self._first

    @property
    def earliest(self) -> int:
        """The number of the oldest record; `end` if there is none."""
        oldest = self.oldest
        return self.end if oldest is None else oldest.seq

    @property
    def oldest(self) -> Record | None:
        """The oldest record; None if there is none."""
        return self._records[self._first] if self._first < len(self._records) else None

    def append(self, records: Sequence[Record]) -> None:
        """Add the newest records."""
        self._records.extend(records)
        self.bytes += sum([record.size for record in records])
        self.end = records[-1].seq + 1

    def skip(self, count: int) -> None:
        """Skip the next `count` numbers, which have no record."""
        self.end += count

    def pop(self) -> Record:
        """Remove and return the oldest record; there must be one."""
        record = self._records[self._first]
        self._records[self._first] = _LEFT
        self._first += 1
        self.bytes -= record.size
        if self._first > _FEW and self._first * 2 > len(self._records):
            self._close_up()
        return record

    def remove(self, seqs: Iterable[int]) -> list[Record]:
        """Remove records at any position; return those found."""
        wanted = set(seqs)
        removed: list[Record] = []
        # Usually all of them are at the front, because a reader deletes the records it has read.
        while (oldest := self.oldest) is not None and oldest.seq in wanted:
            wanted.remove(oldest.seq)
            removed.append(self.pop())
        if not wanted:
            return removed
        # Search only the stretch that contains the wanted records: the window may be long.
        first, end = self._index_after(min(wanted) - 1), self._index_after(max(wanted))
        stretch = self._records[first:end]
        within = [record for record in stretch if record.seq in wanted]
        if within:
            self._records[first:end] = [r for r in stretch if r.seq not in wanted]
            self.bytes -= sum([record.size for record in within])
        return removed + within

    def after(self, seq: int, limit: int) -> Sequence[Record]:
        """Return up to `limit` records with higher numbers, lowest first."""
        index = self._index_after(seq)
        return self._records[index : index + limit]

    def missing(self) -> Iterator[tuple[int, int]]:
        """Yield first and last of each run of missing numbers, between records and after them."""
        expected = self.earliest
        if self._is_whole:
            expected += self.count
        else:
            for record in self:
                if record.seq > expected:
                    yield expected, record.seq - 1
                expected = record.seq + 1
        if self.end > expected:
            yield expected, self.end - 1

    def _index_after(self, seq: int) -> int:
        """Return the index of the first record with a higher number."""
        records, first = self._records, self._first
        if first == len(records) or records[first].seq > seq:
            return first
        if self._is_whole:
            return min(first + seq + 1 - records[first].seq, len(records))
        return bisect_right(records, seq, first, key=lambda record: record.seq)

    @property
    def _is_whole(self) -> bool:
        """Whether no number between the records is missing, which is the usual case."""
        records, count = self._records, self.count
        return count > 0 and records[-1].seq - records[self._first].seq == count - 1

    def _close_up(self) -> None:
        del self._records[: self._first]
        self._first = 0
