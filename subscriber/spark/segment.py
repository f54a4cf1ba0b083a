"""A segment: the rows of one batch in an Arrow file, which is read again for each replay."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

# Of one Arrow batch in a segment. Readers go through it batch by batch, so they must not be large;
# each costs something, so they must not be many.
BATCH_ROWS = 4096
BATCH_BYTES = 16 * 1024 * 1024

# The last column, for the session itself; no reader sees it.
ACK_ID = "_ack_id"


@dataclass(frozen=True, slots=True)
class SegmentFile:
    """One segment on disk. It never changes, and may be sent to another process that sees the file.

    seq: its number; that of the first is 1.
    batches: Arrow batches in it.
    size: bytes of the file.
    """

    path: Path
    seq: int
    rows: int
    batches: int
    size: int

    @classmethod
    def open(cls, path: Path, seq: int) -> SegmentFile:
        """Look into a file.

        Raises:
            OSError, pyarrow.ArrowInvalid: it is not there, or it is no segment.
        """
        with pa.memory_map(str(path)) as file, pa.ipc.open_file(file) as reader:
            rows = sum(
                reader.get_batch(number).num_rows for number in range(reader.num_record_batches)
            )
            return cls(path, seq, rows, reader.num_record_batches, file.size())

    def read(self, first: int = 0, last: int | None = None) -> Iterator[pa.RecordBatch]:
        """Its rows `first` up to but without `last`, from 0; the memory is the file's.

        Raises:
            FileNotFoundError: this machine does not see the file, or it is deleted.
        """
        if not self.path.exists():
            raise FileNotFoundError(
                f"segment {self.path} is not here. Either its rows were acknowledged, and the "
                "DataFrame has none any more: store or cache rows before ack(), and load() the "
                "next; or this machine does not see the driver's files: set transport to inline"
            )
        with pa.memory_map(str(self.path)) as file, pa.ipc.open_file(file) as reader:
            start, end = 0, self.rows if last is None else last
            for number in range(self.batches):
                batch = reader.get_batch(number)
                low, high = max(first - start, 0), min(end - start, batch.num_rows)
                if low < high:
                    yield batch.slice(low, high - low).drop_columns([ACK_ID])
                start += batch.num_rows

    def to_bytes(self, first: int = 0, last: int | None = None) -> bytes:
        """As `read`, as an Arrow stream, for a process that does not see the file."""
        with pa.memory_map(str(self.path)) as file, pa.ipc.open_file(file) as reader:
            schema = reader.schema.remove(reader.schema.get_field_index(ACK_ID))
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, schema) as writer:
            for batch in self.read(first, last):
                writer.write_batch(batch)
        data: bytes = sink.getvalue().to_pybytes()
        return data

    def leases(self) -> dict[str, str]:
        """Each message id with the ack id that it had when the segment was written."""
        with pa.memory_map(str(self.path)) as file, pa.ipc.open_file(file) as reader:
            table = reader.read_all()
            ids, ack_ids = (table.column(name).to_pylist() for name in ("message_id", ACK_ID))
            return dict(zip(ids, ack_ids, strict=True))


def from_bytes(data: bytes) -> Iterator[pa.RecordBatch]:
    """The batches of `SegmentFile.to_bytes`."""
    with pa.ipc.open_stream(data) as reader:
        yield from reader


def encode(rows: pa.RecordBatch) -> tuple[memoryview, int]:
    """The bytes of a segment with these rows, which have ACK_ID, and how many Arrow batches are in
    it."""
    sink = pa.BufferOutputStream()
    count = 0
    with pa.ipc.new_file(sink, rows.schema) as writer:
        for start in range(0, rows.num_rows, BATCH_ROWS):
            for part in _parts(rows.slice(start, BATCH_ROWS)):
                writer.write_batch(part)
                count += 1
    return memoryview(sink.getvalue()), count


def _parts(rows: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """Halves, and halves of these, until one has no more than BATCH_BYTES, or is one row."""
    if rows.nbytes <= BATCH_BYTES or rows.num_rows == 1:
        yield rows
    else:
        half = rows.num_rows // 2
        yield from _parts(rows.slice(0, half))
        yield from _parts(rows.slice(half))
