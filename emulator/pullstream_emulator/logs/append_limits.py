"""Limits of an Append. The limits of a Publish apply too."""

from __future__ import annotations

from pullstream_emulator.engine.resources import publish_limits
from pullstream_emulator.error_texts import too_large, too_small
from pullstream_protocol.messages import feeds_pb2 as feeds

from .selection import NODE, TAG

MAX_RECORDS = 10_000
# Size of one record's data.
MAX_DATA_BYTES = 1024 * 1024
MAX_TAG_BYTES = 256
MAX_NODE_BYTES = 128
MAX_KEY_BYTES = 256


def check_append(request: feeds.AppendRequest) -> int:
    """Refuse a request that breaks a limit, so that nothing is appended; return its size."""
    count = len(request.messages)
    if count < 1:
        raise too_small("message_count", count, 1)
    if count > MAX_RECORDS:
        raise too_large("message_count", count, MAX_RECORDS)
    size = request.ByteSize()
    publish_limits.check_size(size)
    _check_length("idempotency_key", request.idempotency_key, MAX_KEY_BYTES)
    for message in request.messages:
        publish_limits.check_message(message)
        if len(message.data) > MAX_DATA_BYTES:
            raise too_large("data_size", len(message.data), MAX_DATA_BYTES)
        if message.attributes:
            _check_length("tag", message.attributes.get(TAG, ""), MAX_TAG_BYTES)
            _check_length("node", message.attributes.get(NODE, ""), MAX_NODE_BYTES)
    return size


def _check_length(name: str, text: str, maximum: int) -> None:
    size = len(text.encode())
    if size > maximum:
        raise too_large(f"{name}_size", size, maximum)
