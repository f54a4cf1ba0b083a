"""Rows of deleted keys that are so old that they are dropped."""

from __future__ import annotations

from datetime import datetime, timezone
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from pullstream.spark.errors import IngestError

from .cleaning import LEAST_AGE, time_of
from .merge import DELETED, PUBLISHED

if TYPE_CHECKING:
    from pullstream.spark.stores import Bucket, LocalFolder


def limit_of(store: LocalFolder | Bucket, age: float) -> datetime:
    """Return the time before which deletions of an age in seconds were published.

    Raises:
        ValueError: The age is too short.
    """
    if age < LEAST_AGE:
        raise ValueError(
            f"drop_deleted_after is {age:g} seconds; it must be at least 24 hours, because a batch "
            "that is being written may have an older change of a deleted key, which it would revive"
        )
    return datetime.fromtimestamp(time_of(store) - age, timezone.utc)


def check_columns(schema: pa.Schema, place: str) -> None:
    """Check that a table takes changes of rows.

    Raises:
        IngestError: It does not.
    """
    for name, is_right in ((DELETED, pa.types.is_boolean), (PUBLISHED, _has_zone)):
        if name not in schema.names or not is_right(schema.field(name).type):
            raise IngestError(
                f"{place} has no column {name} as upserts write it, so no row of it is that of a "
                "deleted key; only tables of `pullstream ingest --merge-on` have such rows. "
                "Compact it without an age of deletions"
            )


def _has_zone(kind: pa.DataType) -> bool:
    return pa.types.is_timestamp(kind) and kind.tz is not None


def without_deleted(rows: pa.RecordBatch, before: datetime) -> pa.RecordBatch:
    """Return rows without deleted keys whose deletion was published before a time.

    Args:
        rows: Rows of a table that takes changes.
        before: The time, with a time zone. A change that was published before it, and comes after
            this call, may revive a key.
    """
    limit = pa.scalar(before, rows.schema.field(PUBLISHED).type)
    gone = pc.and_(rows.column(DELETED), pc.less(rows.column(PUBLISHED), limit))
    return rows.filter(pc.invert(pc.fill_null(gone, False)))
