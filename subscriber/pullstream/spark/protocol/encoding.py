"""Encoding of a segment: an Arrow file of batches of limited size."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

# Limits of one Arrow batch in a segment. Readers load one batch at a time, so batches must not be
# large. Each batch has a fixed cost, so they must not be small either.
BATCH_ROWS = 4096
BATCH_BYTES = 16 * 1024 * 1024


def encode(rows: pa.RecordBatch) -> bytes:
    """Return the content of an Arrow file with these rows."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, rows.schema) as writer:
        for start in range(0, rows.num_rows, BATCH_ROWS):
            for part in _parts(rows.slice(start, BATCH_ROWS)):
                writer.write_batch(part)
    content: bytes = sink.getvalue().to_pybytes()
    return content


def _parts(rows: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """Split rows in halves until each part has at most BATCH_BYTES or is a single row."""
    if rows.nbytes <= BATCH_BYTES or rows.num_rows == 1:
        yield rows
    else:
        half = rows.num_rows // 2
        yield from _parts(rows.slice(0, half))
        yield from _parts(rows.slice(half))
