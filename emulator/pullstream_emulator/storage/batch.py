"""Rows of consecutive messages of a topic, which need few writes and few bytes per message."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from pullstream_emulator.engine.record import RecordRun, RecordSpan

from .ack_bitmap import CHUNK

if TYPE_CHECKING:
    from pullstream_emulator.engine import Record

# Rows are smaller than this, unless one message is larger.
MAX_BYTES = 1_000_000


def rows(published: Iterable[Sequence[Record]]) -> Iterator[tuple[int, RecordSpan]]:
    """Yield the rows of ascending messages: the first number, and the messages.

    A row has consecutive numbers of one chunk, and at most MAX_BYTES unless it is one message.

    Args:
        published: The messages of each publish.
    """
    first, end, size = 0, 0, 0
    pieces: list[tuple[Sequence[Record], int, int]] = []
    for seq, records, start, stop in _pieces(published):
        added = RecordSpan([(records, start, stop)]).size
        if pieces and (seq != end or seq % CHUNK == 0 or size + added > MAX_BYTES):
            yield first, RecordSpan(pieces)
            pieces = []
        if not pieces:
            first, size = seq, 0
        pieces.append((records, start, stop))
        end, size = seq + stop - start, size + added
    if pieces:
        yield first, RecordSpan(pieces)


def _pieces(
    published: Iterable[Sequence[Record]],
) -> Iterator[tuple[int, Sequence[Record], int, int]]:
    """Yield parts of publishes that are in one chunk and fit into one row.

    A part is its first number, the messages of its publish, and its indexes among them.
    """
    for records in published:
        if type(records) is RecordRun:
            yield from _portions(records.first, records, 0, len(records))
        else:
            for at, record in enumerate(records):
                yield record.seq, records, at, at + 1


def _portions(
    seq: int, records: RecordRun, start: int, stop: int
) -> Iterator[tuple[int, Sequence[Record], int, int]]:
    """Divide a run at the borders of chunks, and halve each part until it fits into one row."""
    left = CHUNK - seq % CHUNK
    half = (stop - start) // 2
    if stop - start > left:
        cut = start + left
    elif half and records.size_of(start, stop) > MAX_BYTES:
        cut = start + half
    else:
        yield seq, records, start, stop
        return
    yield from _portions(seq, records, start, cut)
    yield from _portions(seq + cut - start, records, cut, stop)


def encode(messages: RecordSpan) -> bytes:
    """Return the content of a row: the sizes of the messages, then the encoded messages."""
    return struct.pack(f"<{len(messages)}I", *messages.sizes()) + messages.text()


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
