"""Consecutive messages of a topic as one row: few writes, and little for each message."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from .database import sealed, unsealed
from .progress import CHUNK

if TYPE_CHECKING:
    from emulator.engine import Record

# Rows are smaller than this, unless one message is larger.
MAX_BYTES = 1_000_000


def batches(records: Sequence[Record]) -> Iterator[Sequence[Record]]:
    """Cut ascending records into rows: consecutive numbers, of one chunk, not too large."""
    for run in _runs(records):
        start = 0
        while start < len(run):
            end = start + CHUNK - run[start].seq % CHUNK
            yield from _portions(run[start:end])
            start = end


def _runs(records: Sequence[Record]) -> Iterator[Sequence[Record]]:
    """Cut where numbers are missing. As good as always it is one run, so that is seen at once."""
    if not records or records[-1].seq - records[0].seq == len(records) - 1:
        yield records
        return
    start = 0
    for end in range(1, len(records) + 1):
        if end == len(records) or records[end].seq != records[end - 1].seq + 1:
            yield records[start:end]
            start = end


def _portions(run: Sequence[Record]) -> Iterator[Sequence[Record]]:
    """Halve what is too large for one row."""
    if len(run) > 1 and sum([record.size for record in run]) > MAX_BYTES:
        half = len(run) // 2
        yield from _portions(run[:half])
        yield from _portions(run[half:])
    else:
        yield run


def encode(topic: int, batch: Sequence[Record]) -> bytes:
    sizes = struct.pack(f"<{len(batch)}I", *[record.size for record in batch])
    data = sizes + b"".join([record.encoded for record in batch])
    return sealed(data, topic, batch[0].seq, len(batch))


def decode(topic: int, first: int, count: int, blob: bytes) -> Iterator[tuple[int, bytes]]:
    """The sequence numbers and messages of a row.

    Raises:
        ValueError: it is not as it was written.
    """
    data = unsealed(blob, topic, first, count)
    end = struct.calcsize(f"<{count}I")
    if len(data) < end:
        raise ValueError("a row of messages is too short")
    for seq, size in enumerate(struct.unpack_from(f"<{count}I", data), first):
        yield seq, data[end : end + size]
        end += size
