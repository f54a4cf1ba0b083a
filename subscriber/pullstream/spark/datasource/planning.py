"""Division of a batch's segments into partitions, on the driver."""

from __future__ import annotations

import math
from array import array
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple
from zlib import crc32

import pyarrow as pa
import pyarrow.compute as pc
from pyspark import cloudpickle
from pyspark.sql.datasource import InputPartition

from pullstream.spark import stores
from pullstream.spark.protocol.layout import Plan
from pullstream.spark.settings import IngestSettings
from pullstream.spark.stores import LocalFolder, store_of

from .options import Layout
from .partition import (
    ChosenRows,
    FilePartition,
    InlinePartition,
    RowRange,
    Spool,
    with_subscription,
)

# Numbers of rows between which a task is chosen. With fewer, a task costs more than it saves, also
# where cores are free. With more than the second, it takes longer than another task costs: on two
# cores, two tasks process 50,000 rows a sixth faster than five tasks.
FEWEST_ROWS = 5_000
ROWS_FOR_A_TASK = 25_000

# Maximum size of the rows that are sent with a task. Spark sends a task as one message, again for
# each attempt, and refuses it above `spark.rpc.message.maxSize` (128 MiB by default).
INLINE_BYTES = 16 * 1024 * 1024

# Average size of the rows of a partition by key up to which they are sent in any case. Choosing
# a few rows from a file costs more than sending them.
SENT_BYTES = 256 * 1024


class PlannedRows(NamedTuple):
    """The rows of a batch in one segment; there is at least one.

    Attributes:
        spool: Path or URL of the spool, the settings of its store, and the number of the plan.
        path: The segment's path in the spool.
        rows: Number of the rows.
        numbers: Their numbers in the segment, as in ChosenRows. None: all rows of the segment.
    """

    spool: Spool
    path: str
    rows: int
    numbers: bytes | None = None

    def piece(self, first: int, last: int) -> RowRange | ChosenRows:
        """Return the rows [first, last) of these."""
        if self.numbers is None:
            return RowRange(self.spool, self.path, first, last)
        return ChosenRows(self.spool, self.path, self.numbers[4 * first : 4 * last])


def planned_rows(settings: IngestSettings, plan: Plan) -> list[PlannedRows]:
    """Return the rows of a plan by segment, without its empty parts."""
    spool = _spool(settings, plan.number)
    found = []
    for part in plan.parts:
        if part.taken:
            numbers = None
            if part.left_out:
                left_out = set(part.left_out)
                numbers = array("i", (n for n in range(part.rows) if n not in left_out)).tobytes()
            found.append(PlannedRows(spool, part.segment.path, part.taken, numbers))
    return found


def _spool(settings: IngestSettings, plan: int) -> Spool:
    store = settings.spool()
    if isinstance(store, LocalFolder):
        return str(store.folder), {}, b"", plan
    # The copy in PySpark has no type annotations.
    code: bytes = cloudpickle.dumps(store_of)  # type: ignore[no-untyped-call]
    return str(settings.spool_dir), dict(settings.storage), code, plan


def plan(segments: Sequence[PlannedRows], layout: Layout) -> list[InputPartition]:
    """Return partitions that together contain each row once."""
    rows = sum(each.rows for each in segments)
    if not rows:
        return [FilePartition([])]
    count = min(layout.partitions or tasks_for(rows, layout.cores), rows)
    if layout.by_key:
        return _by_key(segments, count, layout)
    borders = [rows * number // count for number in range(count + 1)]
    runs = [run for pair in pairwise(borders) for run in _runs(segments, *pair, layout)]
    return [_inlined(list(run.batches())) for run in runs] if layout.inline else list(runs)


def tasks_for(rows: int, cores: int) -> int:
    """Return the number of tasks that gives work to all cores."""
    return max(min(cores, math.ceil(rows / FEWEST_ROWS)), math.ceil(rows / ROWS_FOR_A_TASK))


def _runs(
    segments: Sequence[PlannedRows], first: int, last: int, layout: Layout
) -> Iterator[FilePartition]:
    """Yield partitions with the rows [first, last) of all segments, one after the other.

    The rows are split in halves, and these again, until each part is small enough to be sent.
    """
    run = FilePartition(list(_pieces(segments, first, last)), subscription=layout.subscription)
    if layout.inline and last - first > 1 and _size(run.batches()) > INLINE_BYTES:
        middle = (first + last) // 2
        yield from _runs(segments, first, middle, layout)
        yield from _runs(segments, middle, last, layout)
    else:
        yield run


def _pieces(
    segments: Sequence[PlannedRows], first: int, last: int
) -> Iterator[RowRange | ChosenRows]:
    start = 0
    for each in segments:
        low, high = max(first - start, 0), min(last - start, each.rows)
        if low < high:
            yield each.piece(low, high)
        start += each.rows


def _by_key(segments: Sequence[PlannedRows], count: int, layout: Layout) -> list[InputPartition]:
    """Return partitions of which one has all rows of a key, after one pass over all rows."""
    batches = [one for each in segments for one in each.piece(0, each.rows).read()]
    size = _size(batches)
    if len(segments) == 1 and not layout.inline and size > min(count * SENT_BYTES, INLINE_BYTES):
        return _file_by_key(segments[0], batches, count, layout)
    if layout.inline or len(segments) > 1:
        # An estimate: the rows of a key cannot be divided.
        count = max(count, math.ceil(size / INLINE_BYTES))
    batches = [with_subscription(layout.subscription, batch) for batch in batches]
    if len(segments) > 1:
        # The segments of a key may be from two runs. A stable sort keeps the order of one run.
        table = pa.Table.from_batches(batches)
        order = pc.sort_indices(table, [("publish_time", "ascending")])
        batches = table.take(order).combine_chunks().to_batches()
    elif len(batches) > 1 and size <= INLINE_BYTES:
        # Each Arrow batch has a cost in each partition.
        batches = [pa.concat_batches(batches)]
    parts: list[list[pa.RecordBatch]] = [[] for _ in range(count)]
    for batch in batches:
        shares = divided(batch, count)
        rows = batch.take(shares.order)
        for number, first, last in shares.runs:
            parts[number].append(rows.slice(first, last - first))
    return [_inlined(part) for part in parts]


def _file_by_key(
    segment: PlannedRows, batches: Sequence[pa.RecordBatch], count: int, layout: Layout
) -> list[InputPartition]:
    numbers = segment.numbers or array("i", range(segment.rows)).tobytes()
    originals = pa.Array.from_buffers(pa.int32(), segment.rows, [None, pa.py_buffer(numbers)])
    chosen: list[list[bytes]] = [[] for _ in range(count)]
    start = 0
    for batch in batches:
        shares = divided(batch, count)
        order = originals.slice(start, batch.num_rows).take(shares.order)
        numbers_of_batch = memoryview(order.buffers()[1]).cast("i")
        for number, first, last in shares.runs:
            chosen[number].append(bytes(numbers_of_batch[first:last]))
        start += batch.num_rows
    return [
        FilePartition(
            [ChosenRows(segment.spool, segment.path, b"".join(each))], layout.subscription
        )
        for each in chosen
    ]


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


def _size(batches: Iterable[pa.RecordBatch]) -> int:
    return sum(batch.nbytes for batch in batches)


def _inlined(batches: Sequence[pa.RecordBatch]) -> InlinePartition:
    sink = pa.BufferOutputStream()
    if batches:
        with pa.ipc.new_stream(sink, batches[0].schema) as writer:
            for batch in batches:
                writer.write_batch(batch)
    return InlinePartition(sink.getvalue().to_pybytes())


# The copy in PySpark has no type annotations.
cloudpickle.register_pickle_by_value(stores)  # type: ignore[no-untyped-call]
