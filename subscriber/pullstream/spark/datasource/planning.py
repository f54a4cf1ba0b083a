"""Division of a batch's segments into partitions, on the driver."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import pairwise

import pyarrow as pa
from pyspark.sql.datasource import InputPartition

from pullstream.spark.spool.segment import SegmentFile

from .options import Layout
from .partition import FilePartition, InlinePartition, KeyShard, RowRange

# With fewer rows, a task costs more than it saves: on two cores, two tasks process 50,000 rows a
# sixth faster than five tasks.
ROWS_FOR_A_TASK = 25_000

# Maximum size of the rows that are sent with a task. Spark sends a task as one message, again for
# each attempt, and refuses it above `spark.rpc.message.maxSize` (128 MiB by default).
INLINE_BYTES = 16 * 1024 * 1024


def plan(segments: Sequence[SegmentFile], layout: Layout) -> list[InputPartition]:
    """Return partitions that together contain each row of the segments once."""
    rows = sum(file.rows for file in segments)
    if not rows:
        return [FilePartition([])]
    count = min(layout.partitions or math.ceil(rows / ROWS_FOR_A_TASK), rows)
    if layout.by_key:
        found = _by_key(segments, count, layout)
    else:
        borders = [rows * number // count for number in range(count + 1)]
        found = [run for pair in pairwise(borders) for run in _runs(segments, *pair, layout)]
    return [_inlined(each) if layout.inline else each for each in found]


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


def _by_key(segments: Sequence[SegmentFile], count: int, layout: Layout) -> list[FilePartition]:
    whole = [RowRange(file, 0, file.rows) for file in segments]
    if layout.inline:
        # An estimate: the rows of a key cannot be divided.
        count = max(count, math.ceil(sum(file.size for file in segments) / INLINE_BYTES))
    return [
        FilePartition(whole, KeyShard(number, count), layout.subscription)
        for number in range(count)
    ]


def _size(partition: FilePartition) -> int:
    return sum(batch.nbytes for batch in partition.batches())


def _inlined(partition: FilePartition) -> InlinePartition:
    batches = list(partition.batches())
    sink = pa.BufferOutputStream()
    if batches:
        with pa.ipc.new_stream(sink, batches[0].schema) as writer:
            for batch in batches:
                writer.write_batch(batch)
    return InlinePartition(sink.getvalue().to_pybytes())
