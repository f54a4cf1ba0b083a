"""Received messages taken apart by columns."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from protocol.messages import columns_pb2 as wire
from protocol.messages import pubsub_pb2 as pubsub

T = TypeVar("T")

# An entry of the attributes without any content, which no real one is: it ends those of a message.
_END = wire.PubsubMessageColumns(attributes=[b""]).SerializeToString()


class Columns:
    """The fields of some messages, a list for each field with a value for each message.

    columns.proto tells how a thousand messages are read at once. A field that only some of the
    messages have cannot be read so, and is looked up message by message; the others still are. Of
    one that none of them has the list is empty.

    ack_ids, message_ids: have a value for each message in any case.
    publish_times: serialized Timestamps.
    attributes: the serialized entries of all messages, and an empty one after those of each.

    Args:
        encoded: ReceivedMessages as a server serializes them: a field stands there once at most.
    """

    def __init__(self, encoded: Sequence[bytes]) -> None:
        self._encoded = encoded
        self._parsed: list[pubsub.ReceivedMessage] = []
        outer = wire.ReceivedMessageColumns.FromString(b"".join(encoded))
        messages = self._all(outer.message, lambda one: one.message.SerializeToString())
        messages = messages or [b""] * len(encoded)
        inner = wire.PubsubMessageColumns.FromString(_END.join([*messages, b""]))
        missing = [""] * len(encoded)
        self.ack_ids: list[str] = self._all(outer.ack_id, lambda one: one.ack_id) or missing
        self.message_ids: list[str] = (
            self._all(inner.message_id, lambda one: one.message.message_id) or missing
        )
        self.delivery_attempts: list[int] = self._all(
            outer.delivery_attempt, lambda one: one.delivery_attempt
        )
        self.data: list[bytes] = self._all(inner.data, lambda one: one.message.data)
        self.ordering_keys: list[str] = self._all(
            inner.ordering_key, lambda one: one.message.ordering_key
        )
        self.publish_times: list[bytes] = self._all(
            inner.publish_time, lambda one: one.message.publish_time.SerializeToString()
        )
        self.attributes: list[bytes] = list(inner.attributes[:])
        del self._parsed

    def __len__(self) -> int:
        return len(self._encoded)

    def _all(self, found: Sequence[T], look_up: Callable[[pubsub.ReceivedMessage], T]) -> list[T]:
        """The column of a field with these values."""
        if len(found) in (0, len(self._encoded)):
            # A slice is one step of protobuf's, where `list` takes one for each value.
            return list(found[:])
        self._parsed = self._parsed or [*map(pubsub.ReceivedMessage.FromString, self._encoded)]
        return [look_up(one) for one in self._parsed]
