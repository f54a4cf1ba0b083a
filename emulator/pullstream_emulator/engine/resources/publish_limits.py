"""Limits of a Publish request (https://cloud.google.com/pubsub/quotas#resource_limits)."""

from __future__ import annotations

from collections.abc import Iterable

from pullstream_emulator.error_texts import too_large, too_small
from pullstream_protocol.errors import InvalidArgument
from pullstream_protocol.message_limits import (
    MAX_ATTRIBUTE_NAME_BYTES,
    MAX_ATTRIBUTE_VALUE_BYTES,
    MAX_ATTRIBUTES,
    MAX_ORDERING_KEY_BYTES,
    MAX_REQUEST_BYTES,
    MAX_REQUEST_MESSAGES,
    is_reserved,
)
from pullstream_protocol.messages import pubsub_pb2 as pubsub

# The limit of the real service's front end, which has a different error text.
MAX_PAYLOAD_BYTES = 10 * 1024 * 1024


def check_request(request: pubsub.PublishRequest) -> int:
    """Check number and size of the messages of a request. Return the request's size in bytes."""
    count = len(request.messages)
    if count < 1:
        raise too_small("message_count", count, 1)
    if count > MAX_REQUEST_MESSAGES:
        raise too_large("message_count", count, MAX_REQUEST_MESSAGES)
    # Protobuf walks through the whole request to compute its size, so compute it only once.
    size = request.ByteSize()
    check_size(size)
    return size


def check_messages(messages: Iterable[pubsub.PubsubMessage]) -> None:
    """Check the limits of each message, before any message is published."""
    for message in messages:
        check_message(message)


def check_size(size: int) -> None:
    """Raise InvalidArgument if a request of `size` bytes is too large."""
    if size > MAX_PAYLOAD_BYTES:
        raise InvalidArgument(f"Request payload size exceeds the limit: {MAX_PAYLOAD_BYTES} bytes.")
    if size > MAX_REQUEST_BYTES:
        raise too_large("request_size", size, MAX_REQUEST_BYTES)


def check_message(message: pubsub.PubsubMessage) -> None:
    """Raise InvalidArgument if a message breaks a limit."""
    if message.attributes:
        _check_attributes(message)
    elif not message.data:
        raise InvalidArgument(
            "One or more messages in the publish request is empty. Each message must contain "
            "either non-empty data, or at least one attribute."
        )
    key = message.ordering_key
    if key and len(key.encode()) > MAX_ORDERING_KEY_BYTES:
        raise too_large("ordering_key_size", len(key.encode()), MAX_ORDERING_KEY_BYTES)


def _check_attributes(message: pubsub.PubsubMessage) -> None:
    if len(message.attributes) > MAX_ATTRIBUTES:
        raise too_large("attribute_count", len(message.attributes), MAX_ATTRIBUTES)
    for key, value in message.attributes.items():
        if not key or is_reserved(key):
            raise InvalidArgument(
                f"Invalid attribute key given (key={key}). An attribute key must not be empty and "
                "must not begin with 'goog'."
            )
        if len(key.encode()) > MAX_ATTRIBUTE_NAME_BYTES:
            raise too_large("attribute_key_size", len(key.encode()), MAX_ATTRIBUTE_NAME_BYTES)
        if len(value.encode()) > MAX_ATTRIBUTE_VALUE_BYTES:
            raise too_large("attribute_value_size", len(value.encode()), MAX_ATTRIBUTE_VALUE_BYTES)
