"""Recently acknowledged ack IDs of an exactly-once subscription."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence

from pullstream_emulator.engine.now import Now
from pullstream_emulator.engine.observer import Observer, Resource
from pullstream_emulator.engine.seq_set import CHUNK, CHUNK_BITS, masks_of

from .ack_ids import number_of

# An acknowledgement may be repeated within this many seconds. Official clients repeat it for 600
# seconds, and the last attempt needs time to arrive. A generation takes IDs for a fifth of this
# time, and all of its IDs are forgotten together.
REMEMBERED = 660.0
_PERIOD = REMEMBERED / 5

# A chunk has 1,024 numbers. Messages with neighbouring numbers are usually delivered and
# acknowledged together.
_MASK = CHUNK - 1
_BYTES = CHUNK // 8

# Most chunks of a subscription: 64 MB, at about 250 bytes each. A generation has at most an eighth.
MAX_CHUNKS = 1 << 18


class _Generation:
    """The IDs of one period.

    Attributes:
        began: The start of the period, in milliseconds since the epoch.
        full_at: The monotonic time at which it stops taking IDs.
        forgotten_at: The monotonic time at which its IDs are forgotten.
        chunks: For each chunk of numbers, an integer with one bit for each number.
    """

    __slots__ = ("began", "chunks", "forgotten_at", "full_at")

    def __init__(self, began: int, now: float) -> None:
        self.began = began
        self.full_at = now + _PERIOD
        self.forgotten_at = self.full_at + REMEMBERED
        self.chunks: dict[int, int] = {}


class AckedIds:
    """Remembers acknowledged IDs for 11 to 13 minutes.

    A client that lost the answer to an acknowledgement can repeat the request within this time.

    A chunk of 1,024 numbers takes about 250 bytes. That is 0.25 bytes for each ID if all numbers of
    the chunk are acknowledged, and 250 bytes for an ID that is alone in its chunk. With more than
    MAX_CHUNKS chunks the oldest IDs are forgotten earlier.

    The observer gets each chunk as a note before it gets the finished messages. Storage writes
    changes in order, so it never has a finished message without the ID that finished it.
    """

    def __init__(self, subscription: str, observer: Observer) -> None:
        self._subscription = subscription
        self._observer = observer
        self._generations: deque[_Generation] = deque()

    def __contains__(self, ack_id: str) -> bool:
        try:
            number = number_of(ack_id)
        except ValueError:
            # The caller has not checked the form of this ID yet. It refuses the ID later.
            return False
        chunk, bit = number >> CHUNK_BITS, 1 << (number & _MASK)
        return any(each.chunks.get(chunk, 0) & bit for each in self._generations)

    def add_acked(self, ack_ids: Sequence[str], now: Now) -> None:
        """Remember acknowledged IDs, and note the changed chunks for storage."""
        self.drop_expired(now.monotonic)
        generation = self._present(now)
        chunks = generation.chunks
        for chunk, mask in masks_of([number_of(ack_id) for ack_id in ack_ids]).items():
            chunks[chunk] = bits = chunks.get(chunk, 0) | mask
            self._note(generation, chunk, bits.to_bytes(_BYTES, "little"))

    def next_due(self) -> float | None:
        """Return the monotonic time at which the oldest generation is forgotten."""
        return self._generations[0].forgotten_at if self._generations else None

    def drop_expired(self, now: float) -> None:
        """Drop the generations that are too old at `now`."""
        while self._generations and self._generations[0].forgotten_at <= now:
            self._drop_oldest()

    def clear(self) -> None:
        """Forget all IDs, and remove their notes from storage."""
        while self._generations:
            self._drop_oldest()

    def restore(self, notes: Iterable[tuple[str, bytes]], now: Now) -> None:
        """Restore the notes of an earlier run from pairs of name and value."""
        generations: dict[int, _Generation] = {}
        for name, value in notes:
            began, chunk = (int(text, 16) for text in name.rpartition("#")[2].split("."))
            generation = generations.get(began)
            if generation is None:
                generation = _Generation(began, now.due(began / 1000))
                generations[began] = generation
            generation.chunks[chunk] = int.from_bytes(value, "little")
        self._generations.extend(each for _, each in sorted(generations.items()))
        self.drop_expired(now.monotonic)

    def _present(self, now: Now) -> _Generation:
        """Return the generation that takes IDs now."""
        newest = self._generations[-1] if self._generations else None
        if (
            newest is None
            or newest.full_at <= now.monotonic
            or len(newest.chunks) >= MAX_CHUNKS // 8
        ):
            while sum(len(each.chunks) for each in self._generations) > MAX_CHUNKS * 7 // 8:
                self._drop_oldest()
            # `began` is part of the names of notes, so it must be unique.
            began = max(int(now.wall * 1000), newest.began + 1 if newest else 0)
            newest = _Generation(began, now.monotonic)
            self._generations.append(newest)
        return newest

    def _drop_oldest(self) -> None:
        generation = self._generations.popleft()
        for chunk in generation.chunks:
            self._note(generation, chunk, b"")

    def _note(self, generation: _Generation, chunk: int, value: bytes) -> None:
        name = f"{self._subscription}#{generation.began:x}.{chunk:x}"
        self._observer.noted(Resource.ACKED, name, value)


def subscription_of(note: str) -> str:
    """Return the subscription to which a note with this name belongs."""
    return note.rpartition("#")[0]
