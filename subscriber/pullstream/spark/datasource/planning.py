"""Division of a batch's segments into partitions, on the driver."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple
from zlib import crc32

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.datasource import InputPartition

from pullstream.spark.spool.segment import SegmentFile

from .options import Layout
from .partition import (
    ChosenRows,
    FilePartition,
    InlinePartition,
    RowRange,
    with_subscription,
)

# With fewer rows, a task costs more than it saves: on two cores, two tasks process 50,000 rows a
# sixth faster than five tasks.
ROWS_FOR_A_TASK = 25_000

# Maximum size of the rows that are sent with a task. Spark sends a task as one message, again for
# each attempt, and refuses it above `spark.rpc.message.maxSize` (128 MiB by default).
INLINE_BYTES = 16 * 1024 * 1024

# Average size of the rows of a partition by key up to which they are sent in any case. Choosing
# a few rows from a file costs more than sending them.
SENT_BYTES = 256 * 1024


def plan(segments: Sequence[SegmentFile], layout: Layout) -> list[InputPartition]:
    """Return partitions that together contain each row of the segments once."""
    rows = sum(file.rows for file in segments)
    if not rows:
        return [FilePartition([])]
    count = min(layout.partitions or math.ceil(rows / ROWS_FOR_A_TASK), rows)
    if layout.by_key:
        return _by_key(segments, count, layout)
    borders = [rows * number // count for number in range(count + 1)]
    runs = [run for pair in pairwise(borders) for run in _runs(segments, *pair, layout)]
    return [_inlined(list(run.batches())) for run in runs] if layout.inline else list(runs)


def _runs(
    segments: Sequence[SegmentFile], first: int, last: int, layout: Layout
) -> Iterator[FilePartition]:
    """Yield partitions with the rows [first, last) of all segments, one after the other.

    The rows are split in halves, and these again, until each part is small enough to be sent.
    """
    run = FilePartition(list(_pieces(segments, first, last)), subscription=layout.subscription)
    if layout.inline and last - first > 1 and _size(run) > INLINE_BYTES:
        middle = (first + last) // 2
        yield from _runs(segments, first, middle, layout)
        yield from _runs(segments, middle, last, layout)
    else:
        yield run


def _pieces(segments: Sequence[SegmentFile], first: int, last: int) -> Iterator[RowRange]:
    start = 0
    for file in segments:
        low, high = max(first - start, 0), min(last - start, file.rows)
        if low < high:
            yield RowRange(file, low, high)
        start += file.rows


def _by_key(segments: Sequence[SegmentFile], count: int, layout: Layout) -> list[InputPartition]:
    """Return partitions of which one has all rows of a key, after one pass over all rows."""
    size = sum(file.size for file in segments)
    if layout.inline:
        # An estimate: the rows of a key cannot be divided.
        count = max(count, math.ceil(size / INLINE_BYTES))
    elif size > min(count * SENT_BYTES, INLINE_BYTES):
        return _files_by_key(segments, count, layout)
    parts: list[list[pa.RecordBatch]] = [[] for _ in range(count)]
    for file in segments:
        batches = list(file.read())
        if len(batches) > 1 and file.size <= INLINE_BYTES:
            # Each Arrow batch has a cost in each partition.
            batches = [pa.concat_batches(batches)]
        for batch in batches:
            shares = divided(batch, count)
            rows = with_subscription(layout.subscription, batch).take(shares.order)
            for number, first, last in shares.runs:
                parts[number].append(rows.slice(first, last - first))
    return [_inlined(part) for part in parts]


def _files_by_key(
    segments: Sequence[SegmentFile], count: int, layout: Layout
) -> list[InputPartition]:
    parts: list[list[ChosenRows]] = [[] for _ in range(count)]
    for file in segments:
        numbers = [[b""] * file.batches for _ in range(count)]
        for place, batch in enumerate(file.read()):
            shares = divided(batch, count)
            order = memoryview(shares.order.buffers()[1]).cast("i")
            for number, first, last in shares.runs:
                numbers[number][place] = bytes(order[first:last])
        for part, chosen in zip(parts, numbers, strict=True):
            part.append(ChosenRows(file, chosen))
    return [FilePartition(part, layout.subscription) for part in parts]


class Shares(NamedTuple):
    """Shares of the rows of an Arrow batch.

    Attributes:
        order: Numbers of the rows, as 32-bit integers in an array without an offset. The rows of
            the first share are first, in their order.
        runs: Number of each share that has rows, and the range of its rows in `order`.
    """

    order: pa.Array
    runs: list[tuple[int, int, int]]


def divided(batch: pa.RecordBatch, count: int) -> Shares:
    """Divide rows into shares: those with a key by their key, the others evenly."""
    keys = batch.column("ordering_key").dictionary_encode()
    owners = pa.array(
        [crc32(key.encode()) % count if key else None for key in keys.dictionary.to_pylist()],
        pa.int32(),
    )
    turn = pa.array((row % count for row in range(batch.num_rows)), pa.int32())
    owner = pc.coalesce(owners.take(keys.indices), turn)
    # A stable sort, so that the rows of a key stay in order.
    order = pc.sort_indices(owner)
    ends = pc.run_end_encode(owner.take(order))
    lasts = ends.run_ends.to_pylist()
    runs = zip(ends.values.to_pylist(), [0, *lasts], lasts, strict=False)
    return Shares(order.cast(pa.int32()), list(runs))


def _size(partition: FilePartition) -> int:
    return sum(batch.nbytes for batch in partition.batches())


def _inlined(batches: Sequence[pa.RecordBatch]) -> InlinePartition:
    sink = pa.BufferOutputStream()
    if batches:
        with pa.ipc.new_stream(sink, batches[0].schema) as writer:
            for batch in batches:
                writer.write_batch(batch)
    return InlinePartition(sink.getvalue().to_pybytes())
