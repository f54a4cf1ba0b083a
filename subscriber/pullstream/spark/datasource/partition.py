"""Partitions: read rows of segments on an executor.

This module is pickled by value: an executor needs pyspark and pyarrow, but not pullstream. So no
function here may refer to another module of pullstream or its contents. Each task unpickles it, so
it is small: the code of stores comes only with the rows of a bucket.
"""

from __future__ import annotations

import json
import os
import pickle
import sys
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import pyarrow as pa
from pyspark import cloudpickle
from pyspark.sql.datasource import InputPartition

SUBSCRIPTION = "subscription"

# The path of a spool's folder, or the URL of its bucket; the settings of the bucket; the pickled
# function that opens it, which is empty for a folder; the number of the plan.
Spool = tuple[str, dict[str, str], bytes, int]

# Ids of messages in an error; the manifest has all.
_SHOWN = 5


class RowRange(NamedTuple):
    """The rows [first, last) of a segment.

    Attributes:
        spool: The spool and the plan.
        path: The segment's path in the spool.
    """

    spool: Spool
    path: str
    first: int
    last: int

    def read(self) -> Iterator[pa.RecordBatch]:
        """Read the rows. From a file on this machine, their memory is the mapped file."""
        with _opened(self.spool, self.path) as reader:
            start = 0
            for number in range(reader.num_record_batches):
                batch = reader.get_batch(number)
                low, high = max(self.first - start, 0), min(self.last - start, batch.num_rows)
                if low < high:
                    yield batch.slice(low, high - low)
                start += batch.num_rows


class ChosenRows(NamedTuple):
    """Some rows of a segment.

    Attributes:
        spool: As in RowRange.
        path: As in RowRange.
        numbers: Numbers of the rows from 0, in ascending order, as 32-bit integers.
    """

    spool: Spool
    path: str
    numbers: bytes

    def read(self) -> Iterator[pa.RecordBatch]:
        """Read copies of the rows."""
        numbers = memoryview(self.numbers).cast("i")
        with _opened(self.spool, self.path) as reader:
            start = place = 0
            for number in range(reader.num_record_batches):
                batch = reader.get_batch(number)
                end = bisect_left(numbers, start + batch.num_rows, place)
                if place < end:
                    chosen = [row - start for row in numbers[place:end]]
                    yield batch.take(pa.array(chosen, pa.int32()))
                start += batch.num_rows
                place = end


@contextmanager
def _opened(spool: Spool, path: str) -> Iterator[pa.RecordBatchFileReader]:
    """Open a segment during the block.

    Raises:
        FileNotFoundError: The segment is deleted, or is on another machine.
        OSError: The segment is damaged.
    """
    folder, _, _, plan = spool
    try:
        file = _file(spool, path)
    except FileNotFoundError:
        raise FileNotFoundError(
            f"segment {path} of plan {plan} is not in the spool {folder}. If its rows were "
            "acknowledged, the DataFrame is empty now: store or cache the rows before ack(), and "
            "load() the next ones. If this machine does not see the driver's files, set transport "
            f"to inline. {_remedy(spool, path)}"
        ) from None
    with file:
        try:
            with pa.ipc.open_file(file) as reader:
                yield reader
        except (pa.ArrowInvalid, pa.ArrowIndexError) as error:
            raise OSError(
                f"segment {path} of plan {plan} in the spool {folder} is damaged: {error}. "
                f"{_remedy(spool, path)}"
            ) from error


def _file(spool: Spool, path: str) -> pa.NativeFile:
    folder, settings, store_of, _ = spool
    if store_of:
        return pickle.loads(store_of)(folder, settings).open(path)
    return pa.memory_map(os.path.join(folder, path))


def _remedy(spool: Spool, path: str) -> str:
    """Return the messages of a segment that cannot be read, and the command that skips it."""
    folder, _, _, plan = spool
    segment = path.removeprefix("seg/").removesuffix(".arrow")
    manifest = f"man/{segment}.json"
    try:
        with _file(spool, manifest) as file:
            ids = json.loads(file.read())["ids"]
        more = f" and {len(ids) - _SHOWN} more" if len(ids) > _SHOWN else ""
        messages = f"Its messages are {', '.join(ids[:_SHOWN])}{more} ({manifest})"
    except Exception:
        # The first error matters.
        messages = f"{manifest} has the ids of its messages, or had them before the commit"
    return (
        f"{messages}. If the segment cannot be restored, read the batch without it: pullstream "
        f"spool skip {plan} {segment} --spool {folder}"
    )


class FilePartition(InputPartition):
    """Rows that the executor reads from the spool itself.

    Args:
        pieces: The rows, by segment.
        subscription: As in `Layout`.
    """

    def __init__(
        self, pieces: Sequence[RowRange | ChosenRows], subscription: str | None = None
    ) -> None:
        super().__init__(([tuple(piece) for piece in pieces], subscription))
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
            with pa.ipc.open_stream(self.stream) as reader:
                yield from reader


class PartitionReader:
    """The executor's part of a reader, as which each reader is pickled."""

    def __reduce__(self) -> tuple[type[PartitionReader], tuple[()]]:
        return PartitionReader, ()

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Return the Arrow batches of a partition. Of this only the value was sent."""
        match partition.value:
            case bytes() as stream:
                return InlinePartition(stream).batches()
            case pieces, subscription:
                return FilePartition([_piece(*one) for one in pieces], subscription).batches()
        raise ValueError(f"not a partition of this source: {partition!r}")


def _piece(spool: Spool, path: str, *which: Any) -> RowRange | ChosenRows:
    kind: type[RowRange | ChosenRows] = RowRange if len(which) == 2 else ChosenRows
    return kind(spool, path, *which)


def with_subscription(name: str | None, batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return the rows with the column `subscription`, or without it if `name` is None.

    A segment has the column if the options asked for it when the segment was written. A query that
    was restarted with other options may need the opposite.
    """
    if (name is not None) == (SUBSCRIPTION in batch.schema.names):
        return batch.replace_schema_metadata()
    if name is None:
        return batch.drop_columns([SUBSCRIPTION]).replace_schema_metadata()
    column = pa.repeat(pa.scalar(name, pa.string()), batch.num_rows)
    return batch.append_column(SUBSCRIPTION, column).replace_schema_metadata()


# The copy in PySpark has no type annotations.
cloudpickle.register_pickle_by_value(sys.modules[__name__])  # type: ignore[no-untyped-call]
