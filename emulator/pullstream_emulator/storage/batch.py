"""Rows of consecutive messages of a topic, which need few writes and few bytes per message."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from .ack_bitmap import CHUNK

if TYPE_CHECKING:
    from pullstream_emulator.engine import Record

# Rows are smaller than this, unless one message is larger.
MAX_BYTES = 1_000_000


def batches(records: Sequence[Record]) -> Iterator[Sequence[Record]]:
    """Split ascending records into rows.

    A row has consecutive numbers of one chunk, and at most MAX_BYTES unless it is one message.
    """
    for run in _runs(records):
        start = 0
        while start < len(run):
            end = start + CHUNK - run[start].seq % CHUNK
            yield from _portions(run[start:end])
            start = end


def _runs(records: Sequence[Record]) -> Iterator[Sequence[Record]]:
    """Split where numbers are missing. The usual case, a single run, is recognized first."""
    if not records or records[-1].seq - records[0].seq == len(records) - 1:
        yield records
        return
    start = 0
    for end in range(1, len(records) + 1):
        if end == len(records) or records[end].seq != records[end - 1].seq + 1:
            yield records[start:end]
            start = end


def _portions(run: Sequence[Record]) -> Iterator[Sequence[Record]]:
    """Halve a run repeatedly until each part fits into one row."""
    if len(run) > 1 and sum([record.size for record in run]) > MAX_BYTES:
        half = len(run) // 2
        yield from _portions(run[:half])
        yield from _portions(run[half:])
    else:
        yield run


def encode(batch: Sequence[Record]) -> bytes:
    """Return the content of a row: the sizes of the messages, then the encoded messages."""
    sizes = struct.pack(f"<{len(batch)}I", *[record.size for record in batch])
    return sizes + b"".join([record.encoded for record in batch])


def decode(first: int, count: int, data: bytes) -> Iterator[tuple[int, bytes]]:
    """Yield the sequence numbers and messages of a row.

    Args:
        first: The sequence number of the first message.
        count: The number of messages.
        data: The encoded row.

    Raises:
        ValueError: `data` is too short.
    """
    end = struct.calcsize(f"<{count}I")
    if len(data) < end:
        raise ValueError("a row of messages is too short")
    for seq, size in enumerate(struct.unpack_from(f"<{count}I", data), first):
        yield seq, data[end : end + size]
        end += size
