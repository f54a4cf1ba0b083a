"""What an executor gets, and what it does with it: read rows of segments.

Pickled by value: an executor needs pyspark and pyarrow, and nothing of ours installed. So no
function here may refer to a module of ours, nor to what is in one, but for `segment`'s.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from typing import NamedTuple
from zlib import crc32

import pyarrow as pa
from pyspark import cloudpickle
from pyspark.sql.datasource import InputPartition

from . import segment
from .segment import SegmentFile, from_bytes

SUBSCRIPTION = "subscription"


class Piece(NamedTuple):
    """Rows [first, last) of a segment."""

    file: SegmentFile
    first: int
    last: int


class Share(NamedTuple):
    """One part of several, of rows that are dealt out by their ordering keys."""

    number: int
    of: int


class FilePartition(InputPartition):
    """Rows that the executor reads from the spool itself.

    subscription: as `Layout` has it.
    """

    def __init__(
        self,
        pieces: Sequence[Piece],
        share: Share | None = None,
        subscription: str | None = None,
    ) -> None:
        super().__init__(None)
        self.pieces = pieces
        self.share = share
        self.subscription = subscription

    def batches(self) -> Iterator[pa.RecordBatch]:
        found = (
            with_subscription(self.subscription, batch)
            for piece in self.pieces
            for batch in piece.file.read(piece.first, piece.last)
        )
        return found if self.share is None else (rows_of(self.share, batch) for batch in found)


class InlinePartition(InputPartition):
    """Rows that travel with the partition, as an Arrow stream."""

    def __init__(self, stream: bytes) -> None:
        super().__init__(None)
        self.stream = stream

    def batches(self) -> Iterator[pa.RecordBatch]:
        yield from from_bytes(self.stream)


class PartitionReader:
    """The executor's half of a reader."""

    def read(self, partition: FilePartition | InlinePartition) -> Iterator[pa.RecordBatch]:
        return iter(partition.batches())


def with_subscription(name: str | None, batch: pa.RecordBatch) -> pa.RecordBatch:
    """The rows with the column `subscription`, or without it if there is no name for it.

    A segment has it if it was wanted when it was written; by a query that was begun again with
    other options, say, it is not what is wanted now.
    """
    if (name is not None) == (SUBSCRIPTION in batch.schema.names):
        return batch
    if name is None:
        return batch.drop_columns([SUBSCRIPTION])
    column = pa.repeat(pa.scalar(name, pa.string()), batch.num_rows)
    return batch.append_column(SUBSCRIPTION, column)


def rows_of(share: Share, batch: pa.RecordBatch) -> pa.RecordBatch:
    """The rows whose key falls to a share; those without a key are dealt out evenly.

    Within a share the rows keep their order.
    """
    # Not above: executors that deal out nothing need not wait for it when they start.
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
    # The copy that comes with PySpark is without annotations.
    cloudpickle.register_pickle_by_value(_module)  # type: ignore[no-untyped-call]
