"""Partitions: read rows of segments on an executor.

This module is pickled by value: an executor needs pyspark and pyarrow, but not pullstream. So no
function here may refer to another module of pullstream or its contents, except `segment`.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
from pyspark import cloudpickle
from pyspark.sql.datasource import InputPartition

from pullstream.spark.spool import segment
from pullstream.spark.spool.segment import SegmentFile, from_bytes

SUBSCRIPTION = "subscription"


class RowRange(NamedTuple):
    """The rows [first, last) of a segment."""

    file: SegmentFile
    first: int
    last: int

    def read(self) -> Iterator[pa.RecordBatch]:
        """Read the rows."""
        return self.file.read(self.first, self.last)


class ChosenRows(NamedTuple):
    """Some rows of a segment; `numbers` as in `SegmentFile.read_chosen`."""

    file: SegmentFile
    numbers: Sequence[bytes]

    def read(self) -> Iterator[pa.RecordBatch]:
        """Read the rows."""
        return self.file.read_chosen(self.numbers)


class FilePartition(InputPartition):
    """Rows that the executor reads from the spool itself.

    Args:
        pieces: The rows, by segment.
        subscription: As in `Layout`.
    """

    def __init__(
        self, pieces: Sequence[RowRange | ChosenRows], subscription: str | None = None
    ) -> None:
        plain = [
            (str(file.path), file.seq, file.rows, file.batches, file.size, *which)
            for file, *which in pieces
        ]
        super().__init__((plain, subscription))
        self.pieces = pieces
        self.subscription = subscription

    def __reduce__(self) -> tuple[type, tuple[Any, ...]]:
        """Send plain values; otherwise each partition would contain the code of its classes."""
        return InputPartition, (self.value,)

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Read the rows from the segments."""
        for piece in self.pieces:
            for batch in piece.read():
                yield with_subscription(self.subscription, batch)


class InlinePartition(InputPartition):
    """Rows that are sent with the partition, as an Arrow stream."""

    def __init__(self, stream: bytes) -> None:
        super().__init__(stream)
        self.stream = stream

    def __reduce__(self) -> tuple[type, tuple[Any, ...]]:
        """Send plain values, as `FilePartition` does."""
        return InputPartition, (self.value,)

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Decode the Arrow stream that was sent with the partition; it is empty without rows."""
        if self.stream:
            yield from from_bytes(self.stream)


class PartitionReader:
    """The executor's part of a reader."""

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Return the Arrow batches of a partition. Of this only the value was sent."""
        match partition.value:
            case bytes() as stream:
                return InlinePartition(stream).batches()
            case pieces, subscription:
                return FilePartition([_piece(*one) for one in pieces], subscription).batches()
        raise ValueError(f"not a partition of this source: {partition!r}")


def _piece(
    path: str, seq: int, rows: int, batches: int, size: int, *which: Any
) -> RowRange | ChosenRows:
    file = SegmentFile(Path(path), seq, rows, batches, size)
    return RowRange(file, *which) if len(which) == 2 else ChosenRows(file, *which)


def with_subscription(name: str | None, batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return the rows with the column `subscription`, or without it if `name` is None.

    A segment has the column if the options asked for it when the segment was written. A query that
    was restarted with other options may need the opposite.
    """
    if (name is not None) == (SUBSCRIPTION in batch.schema.names):
        return batch
    if name is None:
        return batch.drop_columns([SUBSCRIPTION])
    column = pa.repeat(pa.scalar(name, pa.string()), batch.num_rows)
    return batch.append_column(SUBSCRIPTION, column)


for _module in (segment, sys.modules[__name__]):
    # The copy in PySpark has no type annotations.
    cloudpickle.register_pickle_by_value(_module)  # type: ignore[no-untyped-call]
