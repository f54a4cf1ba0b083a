"""Received messages in encoded form, parsed on access, for users that need only some columns."""

from __future__ import annotations

from collections.abc import Sequence
from typing import overload

from pullstream_protocol.messages import columns_pb2 as columns
from pullstream_protocol.messages import pubsub_pb2 as pubsub

from .message_fields import Columns
from .runtime.computed_once import computed_once


class RawMessages(Sequence[pubsub.ReceivedMessage]):
    """The messages of a response. They are divided when one is accessed, and each access parses it.

    Attributes:
        raw: The response, serialized.
        delivery_attempts: The delivery attempt of each message; empty if there are none.
        has_ordering_keys: Whether a message has an ordering key.
    """

    def __init__(self, raw: bytes, merged: columns.MergedMessages) -> None:
        self.raw: bytes = raw
        # Each message has an ack ID and a message ID.
        self._count = len(merged.ack_id)
        if self._count != len(merged.message.message_id):
            self._count = len(self.encoded)
        self.has_ordering_keys: bool = bool(merged.message.ordering_key)
        attempts = merged.delivery_attempt[:]
        if len(attempts) not in (0, self._count):
            attempts = Columns(self.encoded).delivery_attempts
        self.delivery_attempts: Sequence[int] = attempts

    @computed_once
    def encoded(self) -> Sequence[bytes]:
        """The messages, serialized."""
        # A slice is one operation in protobuf, where `list` needs one for each value.
        return columns.ResponseColumns.FromString(self.raw).received_messages[:]

    @computed_once
    def ack_ids(self) -> Sequence[str]:
        """The ack ID of each message."""
        found = columns.ReceivedMessageColumns.FromString(b"".join(self.encoded)).ack_id[:]
        # Without an ack ID, which no server omits, the values could not be matched to messages.
        return found if len(found) == len(self) else [one.ack_id for one in self]

    def __len__(self) -> int:
        return self._count

    @overload
    def __getitem__(self, at: int) -> pubsub.ReceivedMessage: ...

    @overload
    def __getitem__(self, at: slice) -> Sequence[pubsub.ReceivedMessage]: ...

    def __getitem__(
        self, at: int | slice
    ) -> pubsub.ReceivedMessage | Sequence[pubsub.ReceivedMessage]:
        if isinstance(at, slice):
            return [pubsub.ReceivedMessage.FromString(one) for one in self.encoded[at]]
        return pubsub.ReceivedMessage.FromString(self.encoded[at])


class RawResponse:
    """A response whose messages are not parsed, and take their memory once.

    Args:
        raw: The response, serialized.

    Attributes:
        received_messages: The messages.
        subscription_properties: The properties of the subscription.
    """

    def __init__(self, raw: bytes) -> None:
        # Parsed again when the columns are read. This costs a twentieth of a microsecond for each
        # message, and a waiting response does not take its memory twice.
        merged = columns.MergedResponse.FromString(raw)
        self.received_messages: RawMessages = RawMessages(raw, merged.received_messages)
        self.subscription_properties: pubsub.StreamingPullResponse.SubscriptionProperties = (
            merged.subscription_properties
        )
        self._has_properties = merged.HasField("subscription_properties")

    def HasField(self, name: str) -> bool:  # noqa: N802  # As protobuf's messages.
        """Return whether the response has its subscription_properties."""
        return self._has_properties
