"""Bitmap of the messages that a subscription has finished: one bit for each message."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from pullstream_emulator.engine import seq_set
from pullstream_emulator.engine.seq_set import SeqSet

# Sequence numbers in one chunk: one row of bits in the database.
CHUNK = seq_set.CHUNK
BYTES = CHUNK // 8

# Every bit of a chunk.
ALL = (1 << CHUNK) - 1


class AckBitmap:
    """Finished sequence numbers, in chunks of one bit for each number.

    Chunks in `chunks` have their own bits. Of all other chunks, the chunks before `base` are
    finished and the rest are not. So neither old finished messages nor future messages take memory,
    no matter how long the topic exists. A number below a subscription's first message counts as
    finished.

    Attributes:
        base: The first chunk that is not finished by default.
        chunks: The bits of the exceptions, by chunk.
    """

    def __init__(self, base: int = 0, chunks: dict[int, int] | None = None) -> None:
        self.base = base
        self.chunks: dict[int, int] = {} if chunks is None else chunks

    @classmethod
    def after(cls, seq: int) -> AckBitmap:
        """Return a bitmap in which exactly the numbers up to `seq` are finished."""
        base, bit = divmod(seq + 1, CHUNK)
        return cls(base, {base: (1 << bit) - 1} if bit else {})

    def bits(self, chunk: int) -> int:
        """Return the chunk's bits. The lowest bit is for its first number; 1 means finished."""
        known = self.chunks.get(chunk)
        if known is not None:
            return known
        return ALL if chunk < self.base else 0

    def finish(self, masks: Mapping[int, int]) -> set[int]:
        """Mark numbers (see `masks_of`) as finished. Return the chunks that may have changed."""
        for chunk, mask in masks.items():
            self._set(chunk, self.bits(chunk) | mask)
        return self._advance() | masks.keys()

    def reopen(self, masks: Mapping[int, int]) -> set[int]:
        """Mark numbers as not finished. Return the chunks that may have changed."""
        for chunk, mask in masks.items():
            self._set(chunk, self.bits(chunk) & ~mask)
        return set(masks)

    def _set(self, chunk: int, bits: int) -> None:
        if bits == (ALL if chunk < self.base else 0):
            self.chunks.pop(chunk, None)
        else:
            self.chunks[chunk] = bits

    def _advance(self) -> set[int]:
        """Move `base` past chunks that are completely finished. Return these chunks."""
        passed: set[int] = set()
        while self.chunks.get(self.base) == ALL:
            del self.chunks[self.base]
            passed.add(self.base)
            self.base += 1
        return passed


def masks_of(seqs: Collection[int]) -> Mapping[int, int]:
    """Return the bits of some numbers, by chunk."""
    if isinstance(seqs, SeqSet):
        return seqs.masks()
    return seq_set.masks_of(seqs if isinstance(seqs, range) else list(seqs))
