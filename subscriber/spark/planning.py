"""How the segments of a batch become partitions. On the driver's side."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import pyarrow as pa
from pyspark.sql.datasource import InputPartition

from .options import Layout
from .partition import FilePartition, InlinePartition, Piece, Share
from .segment import SegmentFile

# With fewer rows a task costs more than it saves: on two cores, two tasks take 50,000 rows a sixth
# faster than five.
ROWS_FOR_A_TASK = 25_000


def plan(segments: Sequence[SegmentFile], layout: Layout) -> list[InputPartition]:
    """Partitions that together hold each row of the segments once."""
    if not segments:
        return [FilePartition([])]
    pieces = [
        Piece(file, number, number + 1) for file in segments for number in range(file.batches)
    ]
    rows = sum(file.rows for file in segments)
    wanted = layout.partitions or math.ceil(rows / ROWS_FOR_A_TASK)
    if layout.by_key:
        whole = [Piece(file, 0, file.batches) for file in segments]
        count = max(1, min(wanted, rows))
        found = [FilePartition(whole, Share(index, count)) for index in range(count)]
    else:
        count = max(1, min(wanted, len(pieces)))
        found = [FilePartition(list(run)) for run in _runs(pieces, count)]
    return [_inlined(each) if layout.inline else each for each in found]


def _runs(pieces: Sequence[Piece], count: int) -> Iterator[Sequence[Piece]]:
    """The pieces in `count` runs of about the same length."""
    for index in range(count):
        yield pieces[len(pieces) * index // count : len(pieces) * (index + 1) // count]


def _inlined(partition: FilePartition) -> InlinePartition:
    batches = list(partition.batches())
    sink = pa.BufferOutputStream()
    if batches:
        with pa.ipc.new_stream(sink, batches[0].schema) as writer:
            for batch in batches:
                writer.write_batch(batch)
    return InlinePartition(sink.getvalue().to_pybytes())
