"""What an Append may hold. Beyond that the limits of a Publish are its own."""

from __future__ import annotations

from emulator.engine import publishing
from emulator.refusals import too_large, too_small
from protocol.messages import feeds_pb2 as feeds

from .selection import NODE, TAG

MAX_RECORDS = 10_000
# Of one record's data.
MAX_DATA_BYTES = 1024 * 1024
MAX_TAG_BYTES = 256
MAX_NODE_BYTES = 128
MAX_KEY_BYTES = 256


def check_append(request: feeds.AppendRequest) -> None:
    """Refuse a request that breaks a limit; nothing of it is appended then."""
    count = len(request.messages)
    if count < 1:
        raise too_small("message_count", count, 1)
    if count > MAX_RECORDS:
        raise too_large("message_count", count, MAX_RECORDS)
    publishing.check_size(request.ByteSize())
    _check_length("idempotency_key", request.idempotency_key, MAX_KEY_BYTES)
    for message in request.messages:
        publishing.check_message(message)
        if len(message.data) > MAX_DATA_BYTES:
            raise too_large("data_size", len(message.data), MAX_DATA_BYTES)
        if message.attributes:
            _check_length("tag", message.attributes.get(TAG, ""), MAX_TAG_BYTES)
            _check_length("node", message.attributes.get(NODE, ""), MAX_NODE_BYTES)


def _check_length(name: str, text: str, maximum: int) -> None:
    size = len(text.encode())
    if size > maximum:
        raise too_large(f"{name}_size", size, maximum)
