"""Publish requests by columns: without an object for each message.

A request of 1,000 messages takes 0.3 us for each message instead of 2.5, and 0.8 us instead of 7
with two attributes. The limits of messages are checked for whole columns. A request for which this
cannot be decided, and every wrong one, is read message by message (publish_limits.py).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from pullstream_protocol.message_limits import (
    MAX_ATTRIBUTE_NAME_BYTES,
    MAX_ATTRIBUTE_VALUE_BYTES,
    MAX_ATTRIBUTES,
    MAX_ORDERING_KEY_BYTES,
    is_reserved,
)
from pullstream_protocol.messages import columns_pb2 as columns
from pullstream_protocol.messages import encoded_pb2 as encoded
from pullstream_protocol.messages import pubsub_pb2 as pubsub

# A run of fewer messages takes more memory than their records.
MIN_MESSAGES = 4

# UTF-8 needs at most this many bytes for a character.
_MAX_BYTES_OF_CHARACTER = 4


class PublishColumns(NamedTuple):
    """The messages of a request that are within the limits.

    Attributes:
        parts: The serialized messages, without ID and publish time.
        ordering_keys: Their ordering keys; empty if no message has one.
    """

    parts: Sequence[bytes]
    ordering_keys: Sequence[str]


def read(request: pubsub.PublishRequest) -> PublishColumns | None:
    """Return the messages of a request; None if they must be examined one by one."""
    count = len(request.messages)
    if count < MIN_MESSAGES:
        return None
    # Not the bytes that came: these may have a field several times.
    data = request.SerializeToString()
    merged = columns.MergedPublishRequest.FromString(data).messages
    if len(merged.data) != count or merged.message_id or merged.publish_time:
        return None
    keys = merged.ordering_key
    if keys and (len(keys) != count or not _are_short(keys, MAX_ORDERING_KEY_BYTES)):
        return None
    if merged.HasField("attributes") and not _are_allowed(merged.attributes):
        return None
    return PublishColumns(list(encoded.EncodedPublishRequest.FromString(data).messages), list(keys))


def _are_allowed(attributes: columns.AttributeColumns) -> bool:
    names = set(attributes.key)
    return (
        len(names) <= MAX_ATTRIBUTES
        and "" not in names
        and not any(map(is_reserved, names))
        and _are_short(names, MAX_ATTRIBUTE_NAME_BYTES)
        and _are_short(attributes.value, MAX_ATTRIBUTE_VALUE_BYTES)
    )


def _are_short(texts: Iterable[str], most_bytes: int) -> bool:
    return max(map(len, texts), default=0) * _MAX_BYTES_OF_CHARACTER <= most_bytes
