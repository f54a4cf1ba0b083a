"""Messages as rows: the columns, and how a list of messages becomes an Arrow batch."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from protocol.messages import pubsub_pb2 as pubsub

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


def to_batch(
    received: Sequence[pubsub.ReceivedMessage], subscription: str | None = None
) -> pa.RecordBatch:
    """The rows of these messages, in their order; with a column of it if `subscription` is given.

    Built column by column out of the raw messages: half the price of a dict for each row.
    """
    messages = [one.message for one in received]
    # Each look at a field that is a message makes an object, so there is only one look.
    stamps = [message.publish_time for message in messages]
    columns = [
        pa.array([message.message_id for message in messages], pa.string()),
        pa.array([message.data for message in messages], pa.binary()),
        _attributes(messages),
        pa.array([message.ordering_key for message in messages], pa.string()),
        pa.array([s.seconds * 1_000_000 + s.nanos // 1_000 for s in stamps], _TIME),
        pa.array([one.delivery_attempt or None for one in received], pa.int32()),
    ]
    if subscription is not None:
        columns.append(pa.repeat(pa.scalar(subscription, pa.string()), len(messages)))
    return pa.RecordBatch.from_arrays(columns, schema=row_schema(subscription is not None))


def _attributes(messages: Sequence[pubsub.PubsubMessage]) -> pa.MapArray:
    """One flat list of keys and one of values, cut by offsets: no dict and no list a message."""
    keys: list[str] = []
    values: list[str] = []
    offsets = [0]
    for message in messages:
        attributes = message.attributes
        # By key: `items` of such a map is a generator in Python, and takes half as long again.
        for key in attributes:
            keys.append(key)
            values.append(attributes[key])
        offsets.append(len(keys))
    return pa.MapArray.from_arrays(
        pa.array(offsets, pa.int32()),
        pa.array(keys, pa.string()),
        pa.array(values, pa.string()),
        type=_ATTRIBUTES,
    )
