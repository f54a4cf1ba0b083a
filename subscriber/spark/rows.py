"""Messages as rows: their schema, and how they become an Arrow batch."""

from __future__ import annotations

import pyarrow as pa

from .columns import Columns

_ATTRIBUTES = pa.map_(pa.string(), pa.string())
_TIME = pa.timestamp("us", tz="UTC")

SCHEMA = pa.schema(
    [
        ("message_id", pa.string()),
        ("data", pa.binary()),
        ("attributes", _ATTRIBUTES),
        # Empty, as the wire has it, when there is none.
        ("ordering_key", pa.string()),
        ("publish_time", _TIME),
        # Null without a dead-letter policy: then nobody counts.
        ("delivery_attempt", pa.int32()),
    ]
)
_SUBSCRIPTION = pa.field("subscription", pa.string())


def row_schema(include_subscription: bool = False) -> pa.Schema:
    """The columns of a row, in order."""
    return SCHEMA.append(_SUBSCRIPTION) if include_subscription else SCHEMA


def to_batch(columns: Columns, subscription: str | None = None) -> pa.RecordBatch:
    """The rows of messages; with a column of it if `subscription` is given."""
    arrays = [
        pa.array(columns.message_ids, pa.string()),
        pa.array(columns.data, pa.binary()),
        pa.MapArray.from_arrays(
            pa.array(columns.attribute_offsets, pa.int32()),
            pa.array(columns.attribute_keys, pa.string()),
            pa.array(columns.attribute_values, pa.string()),
            type=_ATTRIBUTES,
        ),
        pa.array(columns.ordering_keys, pa.string()),
        pa.array(columns.publish_times, _TIME),
        pa.array([attempt or None for attempt in columns.delivery_attempts], pa.int32()),
    ]
    if subscription is not None:
        arrays.append(pa.repeat(pa.scalar(subscription, pa.string()), len(columns)))
    return pa.RecordBatch.from_arrays(arrays, schema=row_schema(subscription is not None))
