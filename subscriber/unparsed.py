"""Received messages as they came over the wire, for who wants all of them by columns."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import overload

from protocol.messages import columns_pb2 as columns
from protocol.messages import pubsub_pb2 as pubsub


class UnparsedMessages(Sequence[pubsub.ReceivedMessage]):
    """The messages of a response, each parsed when it is looked at, and again at the next look.

    encoded: each of them, serialized.
    """

    def __init__(self, response: columns.ResponseColumns) -> None:
        # A slice is one step of protobuf's, where `list` takes one for each value.
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
        """The ack id of each."""
        found = columns.ReceivedMessageColumns.FromString(b"".join(self.encoded)).ack_id[:]
        # A message without one, which no server sends, cannot be told from its neighbours.
        return found if len(found) == len(self) else [one.ack_id for one in self]
