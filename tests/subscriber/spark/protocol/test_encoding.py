"""Segments are Arrow files of small batches."""

from __future__ import annotations

import pyarrow as pa
import pytest

from pullstream.spark.protocol.encoding import BATCH_BYTES, BATCH_ROWS, encode


@pytest.mark.parametrize(
    ("rows", "size", "batches"),
    [
        (0, 0, 0),
        (BATCH_ROWS, 0, 1),
        (2 * BATCH_ROWS + 1, 0, 3),
        # Two rows do not fit into a batch, together with their offsets.
        (6, BATCH_BYTES // 2, 6),
        (6, BATCH_BYTES // 4, 2),
        (1, BATCH_BYTES + 1, 1),
    ],
)
def test_the_arrow_batches_of_a_segment_are_small_and_have_each_row_once(
    rows: int, size: int, batches: int
) -> None:
    """A reader has one batch in memory. A single row may be larger than the limit."""
    data = pa.record_batch({"data": [b"%d" % number + bytes(size) for number in range(rows)]})
    reader = pa.ipc.open_file(encode(data))
    assert reader.num_record_batches == batches
    assert reader.read_all().to_pydict() == pa.Table.from_batches([data]).to_pydict()
