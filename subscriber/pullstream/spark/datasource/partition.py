"""Partitions: read rows of segments on an executor.

This module is pickled by value: an executor needs pyspark and pyarrow, but not pullstream. So no
function here may refer to another module of pullstream or its contents, except `segment`.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from typing import NamedTuple
from zlib import crc32

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


class KeyShard(NamedTuple):
    """Part `number` of `of` parts, into which rows are divided by their ordering keys."""

    number: int
    of: int


class FilePartition(InputPartition):
    """Rows that the executor reads from the spool itself.

    Args:
        pieces: The rows, by segment.
        share: The part of these rows to keep, by ordering key. None: all.
        subscription: As in `Layout`.
    """

    def __init__(
        self,
        pieces: Sequence[RowRange],
        share: KeyShard | None = None,
        subscription: str | None = None,
    ) -> None:
        super().__init__(None)
        self.pieces = pieces
        self.share = share
        self.subscription = subscription

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Read the rows from the segments, without the rows of other shares."""
        found = (
            with_subscription(self.subscription, batch)
            for piece in self.pieces
            for batch in piece.file.read(piece.first, piece.last)
        )
        return found if self.share is None else (rows_of(self.share, batch) for batch in found)


class InlinePartition(InputPartition):
    """Rows that are sent with the partition, as an Arrow stream."""

    def __init__(self, stream: bytes) -> None:
        super().__init__(None)
        self.stream = stream

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Decode the Arrow stream that was sent with the partition."""
        yield from from_bytes(self.stream)


class PartitionReader:
    """The executor's part of a reader."""

    def read(self, partition: FilePartition | InlinePartition) -> Iterator[pa.RecordBatch]:
        """Return the Arrow batches of a partition."""
        return iter(partition.batches())


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


def rows_of(share: KeyShard, batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return the rows of one share, in their order.

    A row with a key belongs to the share of its key; rows without a key are distributed evenly.
    """
    # A local import: executors that do not divide rows start faster without it.
    import pyarrow.compute as pc

    keys = batch.column("ordering_key").dictionary_encode()
    owners = pa.array(
        [crc32(key.encode()) % share.of if key else -1 for key in keys.dictionary.to_pylist()],
        pa.int32(),
    )
    owner = owners.take(keys.indices)
    turn = pa.array([row % share.of for row in range(batch.num_rows)], pa.int32())
    return batch.filter(pc.equal(pc.if_else(pc.less(owner, 0), turn, owner), share.number))


for _module in (segment, sys.modules[__name__]):
    # The copy in PySpark has no type annotations.
    cloudpickle.register_pickle_by_value(_module)  # type: ignore[no-untyped-call]
