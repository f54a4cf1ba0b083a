"""Sets and tables of sequence numbers, in chunks of 1,024 numbers.

A backlog is a set of a million numbers that are nearly all consecutive. As bits it takes 1,000
integers, so copies, unions and differences of whole backlogs take microseconds.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Generic, TypeVar

T = TypeVar("T")

CHUNK_BITS = 10
CHUNK = 1 << CHUNK_BITS
_MASK = CHUNK - 1
_ALL = (1 << CHUNK) - 1


class SeqSet(Collection[int]):
    """A set of sequence numbers, iterated in ascending order.

    Every operation on a whole set takes time for each chunk and not for each number.
    """

    __slots__ = ("_chunks", "_is_sorted", "_newest")

    def __init__(self, seqs: Sequence[int] = ()) -> None:
        # One bit for each number. No chunk is empty.
        self._chunks: dict[int, int] = {}
        self._newest = -1
        self._is_sorted = True
        if seqs:
            self.add(masks_of(seqs))

    @classmethod
    def of(cls, masks: Mapping[int, int]) -> SeqSet:
        """Return the set with the bits of some chunks."""
        new = cls()
        new.add(masks)
        return new

    def __len__(self) -> int:
        return sum([bits.bit_count() for bits in self._chunks.values()])

    def __bool__(self) -> bool:
        return bool(self._chunks)

    def __contains__(self, seq: object) -> bool:
        assert isinstance(seq, int)
        return bool(self._chunks.get(seq >> CHUNK_BITS, 0) >> (seq & _MASK) & 1)

    def __iter__(self) -> Iterator[int]:
        return self.after(-1)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, SeqSet) and self._chunks == other._chunks

    def __repr__(self) -> str:
        return f"SeqSet({list(self.runs())})"

    def after(self, seq: int) -> Iterator[int]:
        """Yield the numbers above `seq`. Numbers that are removed meanwhile may be yielded."""
        first = (seq + 1) >> CHUNK_BITS
        for chunk in [chunk for chunk in self._sorted() if chunk >= first]:
            bits = self._chunks.get(chunk, 0)
            if chunk == first:
                bits &= _ALL << ((seq + 1) & _MASK)
            start = chunk << CHUNK_BITS
            yield from _numbers(start, bits)

    def masks(self) -> Mapping[int, int]:
        """Return the bits of each chunk, in ascending order."""
        return self._sorted()

    def runs(self) -> Iterator[tuple[int, int]]:
        """Yield first number and end of each run of consecutive numbers."""
        begun = end = -1
        for chunk, bits in self._sorted().items():
            start = chunk << CHUNK_BITS
            for low, high in bit_runs(bits):
                if start + low != end:
                    if begun >= 0:
                        yield begun, end
                    begun = start + low
                end = start + high
        if begun >= 0:
            yield begun, end

    @property
    def first(self) -> int | None:
        """The lowest number; None if the set is empty."""
        for chunk, bits in self._sorted().items():
            return (chunk << CHUNK_BITS) + (bits & -bits).bit_length() - 1
        return None

    def first_run(self, most: int) -> range:
        """Return the lowest number and its followers up to the first gap, at most `most`."""
        first = self.first
        if first is None:
            return range(0)
        end = first
        while end - first < most:
            bits = self._chunks.get(end >> CHUNK_BITS, 0) >> (end & _MASK)
            ones = (~bits & (bits + 1)).bit_length() - 1
            end += ones
            if not ones or end & _MASK:
                break
        return range(first, min(end, first + most))

    # ---- changes -------------------------------------------------------------------------------

    def add(self, masks: Mapping[int, int]) -> None:
        """Add numbers, given as the bits of their chunks (see `masks_of`)."""
        chunks = self._chunks
        for chunk, mask in masks.items():
            if chunk in chunks:
                chunks[chunk] |= mask
            elif mask:
                chunks[chunk] = mask
                if chunk >= self._newest:
                    self._newest = chunk
                else:
                    self._is_sorted = False

    def discard(self, masks: Mapping[int, int]) -> None:
        """Remove the numbers that are in the set, given as the bits of their chunks."""
        chunks = self._chunks
        for chunk, mask in masks.items():
            before = chunks.get(chunk, 0)
            after = before & ~mask
            if after:
                chunks[chunk] = after
            elif before:
                del chunks[chunk]

    def pop_first(self, most: int) -> list[int]:
        """Remove and return the lowest numbers, at most `most` and at least some if there are any.

        The numbers are from one chunk.
        """
        for chunk, bits in self._sorted().items():
            taken = _numbers(chunk << CHUNK_BITS, bits)[:most]
            self.discard({chunk: bits & ((2 << (taken[-1] & _MASK)) - 1)})
            return taken
        return []

    # ---- new sets ------------------------------------------------------------------------------

    def copy(self) -> SeqSet:
        """Return an independent copy."""
        return SeqSet.of(self._sorted())

    def __or__(self, other: SeqSet) -> SeqSet:
        new = self.copy()
        new.add(other._sorted())
        return new

    def __and__(self, other: SeqSet) -> SeqSet:
        theirs = other._chunks
        return SeqSet.of({c: bits & theirs.get(c, 0) for c, bits in self._sorted().items()})

    def __sub__(self, other: SeqSet) -> SeqSet:
        new = self.copy()
        new.discard(other._chunks)
        return new

    def above(self, seq: int) -> SeqSet:
        """Return the numbers above `seq`."""
        first, bit = (seq + 1) >> CHUNK_BITS, (seq + 1) & _MASK
        masks = {chunk: bits for chunk, bits in self._sorted().items() if chunk >= first}
        if first in masks:
            masks[first] &= _ALL << bit
        return SeqSet.of(masks)

    def _sorted(self) -> dict[int, int]:
        if not self._is_sorted:
            self._chunks = dict(sorted(self._chunks.items()))
            self._is_sorted = True
        return self._chunks


def masks_of(seqs: Sequence[int]) -> dict[int, int]:
    """Return the bits for distinct numbers, by chunk."""
    if len(seqs) == 1:
        return {seqs[0] >> CHUNK_BITS: 1 << (seqs[0] & _MASK)}
    if not seqs:
        return {}
    if type(seqs) is range:
        return run_of(seqs.start, seqs.stop)
    first, last = min(seqs), max(seqs)
    if last - first == len(seqs) - 1:
        # Most calls have one run of consecutive numbers: compute all bits of a chunk together.
        return run_of(first, last + 1)
    masks: dict[int, int] = {}
    for seq in seqs:
        chunk = seq >> CHUNK_BITS
        masks[chunk] = masks.get(chunk, 0) | 1 << (seq & _MASK)
    return masks


def run_of(first: int, end: int) -> dict[int, int]:
    """Return the bits for the numbers from `first` to before `end`, by chunk."""
    masks: dict[int, int] = {}
    for chunk in range(first >> CHUNK_BITS, (end - 1 >> CHUNK_BITS) + 1):
        start = chunk << CHUNK_BITS
        low, high = max(first, start), min(end, start + CHUNK)
        masks[chunk] = ((1 << (high - low)) - 1) << (low - start)
    return masks


def runs_of(seqs: Sequence[int]) -> Iterable[tuple[int, int]]:
    """Return first number and end of each run of consecutive numbers. Repeated ones are skipped."""
    if type(seqs) is range:
        return ((seqs.start, seqs.stop),)
    return SeqSet(list(dict.fromkeys(seqs))).runs()


def bit_runs(bits: int) -> Iterable[tuple[int, int]]:
    """Return the first place and the end of each run of ones in an integer, lowest first."""
    low = (bits & -bits).bit_length() - 1
    if low >= 0 and not (bits >> low) + 1 & bits >> low:
        # One run, the usual case.
        return ((low, bits.bit_length()),)
    return _bit_runs(bits)


def _bit_runs(bits: int) -> Iterator[tuple[int, int]]:
    at = 0
    while bits:
        zeros = (bits & -bits).bit_length() - 1
        bits >>= zeros
        ones = (~bits & (bits + 1)).bit_length() - 1
        bits >>= ones
        yield at + zeros, at + zeros + ones
        at += zeros + ones


def _numbers(start: int, bits: int) -> list[int]:
    """Return the numbers of the bits of a chunk that begins at `start`."""
    if not bits:
        return []
    low = (bits & -bits).bit_length() - 1
    run = bits >> low
    if not run & (run + 1):
        # One run of consecutive numbers, the usual case.
        return list(range(start + low, start + low + run.bit_length()))
    # The text of the bits, lowest first.
    text = bin(bits)[:1:-1]
    return [start + at for at, bit in enumerate(text) if bit == "1"]


class SeqCounts:
    """A count for each sequence number, changed for a whole set of numbers at once.

    Each chunk has an integer for each binary digit of its counts, with one bit for each number. So
    a change takes time for each chunk and digit, and not for each number.
    """

    __slots__ = ("_chunks",)

    def __init__(self) -> None:
        # The digits of a chunk, lowest first.
        self._chunks: dict[int, list[int]] = {}

    def add(self, masks: Mapping[int, int], times: int = 1) -> None:
        """Add `times` to the count of each of these numbers, given as the bits of their chunks."""
        for place in range(times.bit_length()):
            if times >> place & 1:
                for chunk, mask in masks.items():
                    _carry(self._chunks.setdefault(chunk, []), place, mask)

    def subtract(self, masks: Mapping[int, int]) -> dict[int, int]:
        """Subtract 1 from the count of each of these numbers, which must be above 0.

        Returns:
            The numbers whose count is 0 now.
        """
        zero: dict[int, int] = {}
        for chunk, mask in masks.items():
            digits, borrow, counted = self._chunks[chunk], mask, 0
            for place, digit in enumerate(digits):
                digits[place] = digit ^ borrow
                borrow &= ~digit
                counted |= digits[place]
            if mask & ~counted:
                zero[chunk] = mask & ~counted
            if not counted:
                del self._chunks[chunk]
        return zero

    def counted(self, masks: Mapping[int, int]) -> dict[int, int]:
        """Return the numbers whose count is above 0."""
        above: dict[int, int] = {}
        for chunk, mask in masks.items():
            counted = 0
            for digit in self._chunks.get(chunk, ()):
                counted |= digit
            if mask & counted:
                above[chunk] = mask & counted
        return above


def _carry(digits: list[int], place: int, mask: int) -> None:
    """Add a power of two to the counts of some numbers of a chunk."""
    while mask:
        if place >= len(digits):
            digits.extend([0] * (place + 1 - len(digits)))
        digits[place], mask = digits[place] ^ mask, digits[place] & mask
        place += 1


class _Segment(Generic[T]):
    """The values of one chunk. The place of a number without a value has None."""

    __slots__ = ("first", "places", "present")

    def __init__(self, first: int) -> None:
        self.first = first
        self.places: list[T | None] = []
        # One bit for each number of the chunk that has a value.
        self.present = 0


class SeqTable(Generic[T]):
    """Values by sequence number, at 8 bytes each if the numbers are dense."""

    __slots__ = ("_segments",)

    def __init__(self) -> None:
        # In ascending order, if the numbers are added in ascending order. No segment is empty.
        self._segments: dict[int, _Segment[T]] = {}

    def get(self, seq: int) -> T | None:
        """Return the value of a number; None if it has none."""
        segment = self._segments.get(seq >> CHUNK_BITS)
        if segment is None:
            return None
        at = seq - segment.first
        return segment.places[at] if 0 <= at < len(segment.places) else None

    def get_all(self, seqs: Sequence[int]) -> list[T]:
        """Return the values of ascending numbers of one chunk. Other numbers are skipped."""
        segment = self._segments.get(seqs[0] >> CHUNK_BITS) if seqs else None
        if segment is None:
            return []
        places, first = segment.places, segment.first
        if seqs[0] >= first and seqs[-1] - seqs[0] == len(seqs) - 1:
            found = places[seqs[0] - first : seqs[-1] + 1 - first]
        else:
            found = [places[seq - first] for seq in seqs if 0 <= seq - first < len(places)]
        return [value for value in found if value is not None]

    def put(self, seq: int, value: T) -> None:
        """Set the value of a number that has none."""
        segment = self._segments.get(seq >> CHUNK_BITS)
        if segment is None:
            segment = self._segments[seq >> CHUNK_BITS] = _Segment(seq)
        places = segment.places
        at = seq - segment.first
        if at == len(places):
            places.append(value)
        elif at > len(places):
            places.extend([None] * (at - len(places)))
            places.append(value)
        else:
            if at < 0:
                places[:0] = [None] * -at
                segment.first, at = seq, 0
            places[at] = value
        segment.present |= 1 << (seq & _MASK)

    def put_all(self, seqs: Sequence[int], values: Sequence[T]) -> None:
        """Set the values of numbers in ascending order that have none."""
        if not seqs:
            return
        first = seqs[0]
        if len(seqs) == 1 or seqs[-1] - first != len(seqs) - 1:
            for seq, value in zip(seqs, values, strict=True):
                self.put(seq, value)
            return
        # A run of consecutive numbers.
        done = 0
        while done < len(values):
            self.put(first + done, values[done])
            segment = self._segments[first + done >> CHUNK_BITS]
            end = min(done + CHUNK - (first + done & _MASK), len(values))
            if first + done - segment.first == len(segment.places) - 1:
                segment.places.extend(values[done + 1 : end])
                run = (1 << (end - done)) - 1
                segment.present |= run << (first + done & _MASK)
            else:
                for at in range(done + 1, end):
                    self.put(first + at, values[at])
            done = end

    def replace(self, old: T, first: int, values: Sequence[T]) -> None:
        """Replace the value `old` of consecutive numbers. Other numbers among them are skipped."""
        done = 0
        while done < len(values):
            part = min(CHUNK - (first + done & _MASK), len(values) - done)
            segment = self._segments.get(first + done >> CHUNK_BITS)
            if segment is not None:
                places, start = segment.places, first + done - segment.first
                for at in range(max(start, 0), min(start + part, len(places))):
                    if places[at] is old:
                        places[at] = values[done + at - start]
            done += part

    def remove(self, masks: Mapping[int, int]) -> list[tuple[int, list[T | None]]]:
        """Remove the values of numbers, given as the bits of their chunks.

        Returns:
            The first number and the former values of each run of numbers in a chunk. The value is
            None where a number had none.
        """
        removed: list[tuple[int, list[T | None]]] = []
        for chunk, mask in masks.items():
            segment = self._segments.get(chunk)
            if segment is None:
                continue
            places, offset = segment.places, (chunk << CHUNK_BITS) - segment.first
            for low, high in bit_runs(mask):
                first, end = max(low + offset, 0), min(high + offset, len(places))
                if first < end:
                    values = places[first:end]
                    places[first:end] = [None] * (end - first)
                    removed.append((first + segment.first, values))
            segment.present &= ~mask
            if not segment.present:
                del self._segments[chunk]
        return removed

    @property
    def first_chunk(self) -> int | None:
        """The first chunk with a value, if the numbers were added in ascending order."""
        return next(iter(self._segments), None)

    def last_items(self) -> Iterator[tuple[int, int, T]]:
        """Yield each chunk with its last number and value, in the order of the table."""
        for chunk, segment in self._segments.items():
            end = segment.first + len(segment.places)
            for before, value in enumerate(reversed(segment.places), 1):
                if value is not None:
                    yield chunk, end - before, value
                    break

    def items(self, chunk: int) -> list[tuple[int, T]]:
        """Return the numbers and values of a chunk."""
        segment = self._segments[chunk]
        numbered = enumerate(segment.places, segment.first)
        return [(seq, value) for seq, value in numbered if value is not None]

    def pop_chunk(self) -> list[T]:
        """Remove and return the values of the first chunk; empty if there is none."""
        chunk = next(iter(self._segments), None)
        if chunk is None:
            return []
        return [value for value in self._segments.pop(chunk).places if value is not None]
