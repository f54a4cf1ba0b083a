"""Message rows: their schema, and the conversion to an Arrow batch."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc
from google.protobuf.timestamp_pb2 import Timestamp

from pullstream.message_fields import Columns, MergedColumns, keys_and_values

_ATTRIBUTES = pa.map_(pa.string(), pa.string())
_TIME = pa.timestamp("us", tz="UTC")

SCHEMA = pa.schema(
    [
        ("message_id", pa.string()),
        ("data", pa.binary()),
        ("attributes", _ATTRIBUTES),
        # Empty if the message has no key, as on the wire.
        ("ordering_key", pa.string()),
        ("publish_time", _TIME),
        # Null without a dead-letter policy, because attempts are not counted then.
        ("delivery_attempt", pa.int32()),
    ]
)
# Created once, because creating them costs more than using them.
_END = pa.scalar(b"", pa.binary())
_BEGINNING = pa.array([0], pa.int32())
_SUBSCRIPTION = pa.field("subscription", pa.string())


def row_schema(include_subscription: bool = False) -> pa.Schema:
    """Return the columns of a row, in order."""
    return SCHEMA.append(_SUBSCRIPTION) if include_subscription else SCHEMA


def to_batch(columns: Columns | MergedColumns, subscription: str | None = None) -> pa.RecordBatch:
    """Return the rows of messages, with the column `subscription` if a value is given."""
    count = len(columns)
    arrays = [
        pa.array(columns.message_ids, pa.string()),
        _filled(columns.data, b"", pa.binary(), count),
        _maps(columns.attributes),
        _filled(columns.ordering_keys, "", pa.string(), count),
        _times(columns.publish_times, count),
        _attempts(columns.delivery_attempts, count),
    ]
    if subscription is not None:
        arrays.append(pa.repeat(pa.scalar(subscription, pa.string()), count))
    return pa.RecordBatch.from_arrays(arrays, schema=row_schema(subscription is not None))


def _filled(values: Sequence[object], absent: object, kind: pa.DataType, count: int) -> pa.Array:
    if not values:
        return pa.repeat(pa.scalar(absent, kind), count)
    return pa.array(values, kind)


def _attempts(attempts: Sequence[int], count: int) -> pa.Array:
    if not attempts:
        return pa.nulls(count, pa.int32())
    return pa.array([attempt or None for attempt in attempts], pa.int32())


def _times(stamps: Sequence[bytes], count: int) -> pa.Array:
    # Messages that were published together have the same time, which is parsed once.
    each = _filled(stamps, b"", pa.binary(), count).dictionary_encode()
    return pa.array(map(_micros, each.dictionary.to_pylist()), _TIME).take(each.indices)


def _micros(stamp: bytes) -> int:
    time = Timestamp.FromString(stamp)
    return time.seconds * 1_000_000 + time.nanos // 1_000


def _maps(attributes: Sequence[bytes]) -> pa.MapArray:
    """Return the attributes of each message.

    Args:
        attributes: Serialized entries of all messages; an empty entry ends each message.
    """
    marked = pa.array(attributes, pa.binary())
    is_entry = pc.not_equal(marked, _END)
    before = pc.cumulative_sum(is_entry.cast(pa.int32())).filter(pc.invert(is_entry))
    offsets = pa.concat_arrays([_BEGINNING, before])
    # Most attributes are the same in many messages; each is parsed once.
    entries = marked.filter(is_entry).dictionary_encode()
    keys, values = (
        pa.array(column, pa.string()).take(entries.indices)
        for column in keys_and_values(entries.dictionary.to_pylist())
    )
    return pa.MapArray.from_arrays(offsets, keys, values, type=_ATTRIBUTES)
