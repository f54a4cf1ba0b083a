"""The records that a feed keeps, by their numbers."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence

from emulator.engine import Record

# Stands where a record has left: nobody is to hold what is gone.
_LEFT = Record(0, "", b"", 0)

# So many places of records that have left are nothing to care about.
_FEW = 1024


class Window:
    """Records in the order of their numbers, not all of which need be there.

    Places at the front are given up many at a time, so that taking the oldest costs nearly nothing,
    however many there are. Numbers without a record take no place.

    end: the number that the next record has.
    bytes: of the records.
    """

    def __init__(self, end: int) -> None:
        self.end = end
        self.bytes = 0
        # From _first on; what is before has left.
        self._records: list[Record] = []
        self._first = 0

    def __iter__(self) -> Iterator[Record]:
        return (self._records[index] for index in range(self._first, len(self._records)))

    @property
    def count(self) -> int:
        return len(self._records) - self._first

    @property
    def earliest(self) -> int:
        """The number of the oldest record; `end` if there is none."""
        oldest = self.oldest
        return self.end if oldest is None else oldest.seq

    @property
    def oldest(self) -> Record | None:
        return self._records[self._first] if self._first < len(self._records) else None

    def append(self, records: Sequence[Record]) -> None:
        """Add the newest."""
        self._records.extend(records)
        self.bytes += sum([record.size for record in records])
        self.end = records[-1].seq + 1

    def skip(self, count: int) -> None:
        """The next numbers have no record."""
        self.end += count

    def pop(self) -> Record:
        """Take the oldest record out; there must be one."""
        record = self._records[self._first]
        self._records[self._first] = _LEFT
        self._first += 1
        self.bytes -= record.size
        if self._first > _FEW and self._first * 2 > len(self._records):
            self._close_up()
        return record

    def remove(self, seqs: Iterable[int]) -> list[Record]:
        """Take records out, wherever they stand; returns those that were there."""
        wanted = set(seqs)
        removed: list[Record] = []
        # Mostly all of them are at the front: a reader deletes what it has.
        while (oldest := self.oldest) is not None and oldest.seq in wanted:
            wanted.remove(oldest.seq)
            removed.append(self.pop())
        within = [record for record in self if record.seq in wanted] if wanted else []
        if within:
            self._records = [record for record in self if record.seq not in wanted]
            self._first = 0
            self.bytes -= sum([record.size for record in within])
        return removed + within

    def after(self, seq: int, limit: int) -> Sequence[Record]:
        """Up to `limit` records with higher numbers, the lowest first."""
        index = self._index_after(seq)
        return self._records[index : index + limit]

    def missing(self) -> Iterator[tuple[int, int]]:
        """First and last of the numbers between records, or behind the last, that have none."""
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
        """Where the first record with a higher number stands."""
        records, first = self._records, self._first
        if first == len(records) or records[first].seq > seq:
            return first
        if self._is_whole:
            return min(first + seq + 1 - records[first].seq, len(records))
        return bisect_right(records, seq, first, key=lambda record: record.seq)

    @property
    def _is_whole(self) -> bool:
        """Whether no number between the records is missing, as is nearly always so."""
        records, count = self._records, self.count
        return count > 0 and records[-1].seq - records[self._first].seq == count - 1

    def _close_up(self) -> None:
        del self._records[: self._first]
        self._first = 0
