"""Rows of consecutive messages of a topic, which need few writes and few bytes per message."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from pullstream_emulator.engine.record import RecordRun

from .ack_bitmap import CHUNK

if TYPE_CHECKING:
    from pullstream_emulator.engine import Record

# Rows are smaller than this, unless one message is larger.
MAX_BYTES = 1_000_000


def rows(published: Iterable[Sequence[Record]]) -> Iterator[tuple[int, Sequence[bytes]]]:
    """Yield the rows of ascending messages: the first number, and the encoded messages.

    A row has consecutive numbers of one chunk, and at most MAX_BYTES unless it is one message.

    Args:
        published: The messages of each publish.
    """
    for start, encoded in _joined(published):
        first, done = start, 0
        while done < len(encoded):
            end = done + CHUNK - first % CHUNK
            yield from _portions(first, encoded[done:end])
            first, done = first + end - done, end


def _joined(published: Iterable[Sequence[Record]]) -> Iterator[tuple[int, Sequence[bytes]]]:
    """Yield each run of consecutive messages, over several publishes if there are more."""
    first, encoded = 0, list[bytes]()
    for start, run in _runs(published):
        if start != first + len(encoded):
            yield first, encoded
            first, encoded = start, []
        encoded += run
    yield first, encoded


def _runs(published: Iterable[Sequence[Record]]) -> Iterator[tuple[int, Sequence[bytes]]]:
    for records in published:
        if type(records) is RecordRun:
            yield records.first, records.encoded()
        else:
            for record in records:
                yield record.seq, (record.encoded,)


def _portions(first: int, encoded: Sequence[bytes]) -> Iterator[tuple[int, Sequence[bytes]]]:
    """Halve a run repeatedly until each part fits into one row."""
    if len(encoded) > 1 and sum(map(len, encoded)) > MAX_BYTES:
        half = len(encoded) // 2
        yield from _portions(first, encoded[:half])
        yield from _portions(first + half, encoded[half:])
    else:
        yield first, encoded


def encode(encoded: Sequence[bytes]) -> bytes:
    """Return the content of a row: the sizes of the messages, then the encoded messages."""
    return struct.pack(f"<{len(encoded)}I", *map(len, encoded)) + b"".join(encoded)


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
