"""Segments: Arrow files with the rows of one batch, read again for each replay."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

# Limits of one Arrow batch in a segment. Readers load one batch at a time, so batches must not be
# large. Each batch has a fixed cost, so they must not be small either.
BATCH_ROWS = 4096
BATCH_BYTES = 16 * 1024 * 1024

# The last column. It is for the session and hidden from readers.
ACK_ID = "_ack_id"


@dataclass(frozen=True, slots=True)
class SegmentFile:
    """One segment on disk.

    The file never changes. The object may be sent to another process that sees the file.

    Attributes:
        path: The file.
        seq: Number of the segment; the first one is 1.
        rows: Number of rows.
        batches: Number of Arrow batches in the file.
        size: Size of the file in bytes.
    """

    path: Path
    seq: int
    rows: int
    batches: int
    size: int

    @classmethod
    def open(cls, path: Path, seq: int) -> SegmentFile:
        """Open a file and read its numbers.

        Raises:
            OSError: The file cannot be read.
            pyarrow.ArrowInvalid: The file is not a segment.
        """
        with pa.memory_map(str(path)) as file, pa.ipc.open_file(file) as reader:
            rows = sum(
                reader.get_batch(number).num_rows for number in range(reader.num_record_batches)
            )
            return cls(path, seq, rows, reader.num_record_batches, file.size())

    def read(self, first: int = 0, last: int | None = None) -> Iterator[pa.RecordBatch]:
        """Yield the rows `first` to `last` - 1, counted from 0. Their memory is the mapped file.

        Args:
            first: The first row.
            last: The row after the last one. None: all remaining rows.

        Raises:
            FileNotFoundError: The file is deleted, or is on another machine.
        """
        with self._reader() as reader:
            start, end = 0, self.rows if last is None else last
            for number in range(self.batches):
                batch = reader.get_batch(number)
                low, high = max(first - start, 0), min(end - start, batch.num_rows)
                if low < high:
                    yield batch.slice(low, high - low).drop_columns([ACK_ID])
                start += batch.num_rows

    def read_chosen(self, numbers: Sequence[bytes]) -> Iterator[pa.RecordBatch]:
        """Yield copies of some rows.

        Args:
            numbers: For each Arrow batch of the file the numbers of its rows, counted from 0, as
                32-bit integers.

        Raises:
            FileNotFoundError: The file is deleted, or is on another machine.
        """
        with self._reader() as reader:
            for number, rows in enumerate(numbers):
                if rows:
                    chosen = [None, pa.py_buffer(rows)]
                    indices = pa.Array.from_buffers(pa.int32(), len(rows) // 4, chosen)
                    yield reader.get_batch(number).drop_columns([ACK_ID]).take(indices)

    @contextmanager
    def _reader(self) -> Iterator[pa.ipc.RecordBatchFileReader]:
        """Open the file during the block.

        Raises:
            FileNotFoundError: The file is deleted, or is on another machine.
        """
        if not self.path.exists():
            raise FileNotFoundError(
                f"segment {self.path} does not exist. If its rows were acknowledged, the DataFrame "
                "is empty now: store or cache the rows before ack(), and load() the next ones. If "
                "this machine does not see the driver's files, set transport to inline"
            )
        with pa.memory_map(str(self.path)) as file, pa.ipc.open_file(file) as reader:
            yield reader

    def to_bytes(self, first: int = 0, last: int | None = None) -> bytes:
        """Return the rows of `read` as an Arrow stream, for processes that do not see the file."""
        with pa.memory_map(str(self.path)) as file, pa.ipc.open_file(file) as reader:
            schema = reader.schema.remove(reader.schema.get_field_index(ACK_ID))
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, schema) as writer:
            for batch in self.read(first, last):
                writer.write_batch(batch)
        data: bytes = sink.getvalue().to_pybytes()
        return data

    @property
    def oldest_publish_time(self) -> float | None:
        """The earliest publish time, in seconds since the epoch; None without rows."""
        with pa.memory_map(str(self.path)) as file, pa.ipc.open_file(file) as reader:
            times = [
                found
                for number in range(self.batches)
                if (found := oldest_of(reader.get_batch(number))) is not None
            ]
        return min(times, default=None)

    def leases(self) -> dict[str, str]:
        """Return each message id with the ack id that it had when the segment was written."""
        with pa.memory_map(str(self.path)) as file, pa.ipc.open_file(file) as reader:
            table = reader.read_all()
            ids, ack_ids = (table.column(name).to_pylist() for name in ("message_id", ACK_ID))
            return dict(zip(ids, ack_ids, strict=True))


def oldest_of(rows: pa.RecordBatch) -> float | None:
    """Return the earliest publish time of rows, in seconds since the epoch; None without rows."""
    found = pc.min(rows.column("publish_time").cast(pa.int64())).as_py()
    return None if found is None else float(found) / 1e6


def from_bytes(data: bytes) -> Iterator[pa.RecordBatch]:
    """Yield the batches of `SegmentFile.to_bytes`."""
    with pa.ipc.open_stream(data) as reader:
        yield from reader


def encode(rows: pa.RecordBatch) -> tuple[memoryview, int]:
    """Return the bytes of a segment and the number of its Arrow batches.

    Args:
        rows: The rows, including the column ACK_ID.
    """
    sink = pa.BufferOutputStream()
    count = 0
    with pa.ipc.new_file(sink, rows.schema) as writer:
        for start in range(0, rows.num_rows, BATCH_ROWS):
            for part in _parts(rows.slice(start, BATCH_ROWS)):
                writer.write_batch(part)
                count += 1
    return memoryview(sink.getvalue()), count


def _parts(rows: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """Split rows in halves until each part has at most BATCH_BYTES or is a single row."""
    if rows.nbytes <= BATCH_BYTES or rows.num_rows == 1:
        yield rows
    else:
        half = rows.num_rows // 2
        yield from _parts(rows.slice(0, half))
        yield from _parts(rows.slice(half))
