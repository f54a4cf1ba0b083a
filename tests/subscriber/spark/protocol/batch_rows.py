"""The rows of a batch, read without Spark."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from pullstream.spark.protocol.layout import Plan, read_segment


def rows_of(plan: Plan, contents: Sequence[bytes | None]) -> pa.Table:
    """Return the rows of a plan; a table without columns if it has none.

    Args:
        plan: The plan.
        contents: The files of its segments. None for a segment of which no row is read.
    """
    tables = []
    for part, data in zip(plan.parts, contents, strict=True):
        if part.taken:
            rows = sorted(set(range(part.rows)).difference(part.left_out))
            tables.append(read_segment(plan.number, part, data).take(rows))
    return pa.concat_tables(tables) if tables else pa.table({})
