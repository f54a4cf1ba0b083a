"""Received messages in encoded form, parsed on access, for users that need only some columns."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import overload

from pullstream_protocol.messages import columns_pb2 as columns
from pullstream_protocol.messages import pubsub_pb2 as pubsub


class LazyMessages(Sequence[pubsub.ReceivedMessage]):
    """The messages of a response. Each is parsed at every access.

    Attributes:
        encoded: The messages, serialized.
    """

    def __init__(self, response: columns.ResponseColumns) -> None:
        # A slice is one operation in protobuf, where `list` needs one for each value.
        self.encoded: Sequence[bytes] = response.received_messages[:]

    def __len__(self) -> int:
        return len(self.encoded)

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

    @cached_property
    def ack_ids(self) -> Sequence[str]:
        """The ack ID of each message."""
        found = columns.ReceivedMessageColumns.FromString(b"".join(self.encoded)).ack_id[:]
        # Without an ack ID, which no server omits, the values could not be matched to messages.
        return found if len(found) == len(self) else [one.ack_id for one in self]
