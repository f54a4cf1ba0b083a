"""Received messages taken apart by columns."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from google.protobuf.timestamp_pb2 import Timestamp

from protocol.messages import columns_pb2 as wire
from protocol.messages import pubsub_pb2 as pubsub

T = TypeVar("T")

# An entry of the attributes without any content, which no real one is: it ends those of a message.
_END = wire.PubsubMessageColumns(attributes=[b""]).SerializeToString()


class Columns:
    """The fields of some messages, a list for each field with a value for each message.

    columns.proto tells how a thousand messages are read at once. A field that only some of the
    messages have cannot be read so, and is looked up message by message; the others still are.

    Args:
        encoded: serialized ReceivedMessages, by protobuf itself: a field stands there once at most.
    """

    def __init__(self, encoded: Sequence[bytes]) -> None:
        self._encoded = encoded
        self._parsed: list[pubsub.ReceivedMessage] = []
        outer = wire.ReceivedMessageColumns.FromString(b"".join(encoded))
        messages = self._all(outer.message, b"", lambda one: one.message.SerializeToString())
        inner = wire.PubsubMessageColumns.FromString(_END.join([*messages, b""]))
        self.ack_ids: list[str] = self._all(outer.ack_id, "", lambda one: one.ack_id)
        self.delivery_attempts: list[int] = self._all(
            outer.delivery_attempt, 0, lambda one: one.delivery_attempt
        )
        self.message_ids: list[str] = self._all(
            inner.message_id, "", lambda one: one.message.message_id
        )
        self.data: list[bytes] = self._all(inner.data, b"", lambda one: one.message.data)
        self.ordering_keys: list[str] = self._all(
            inner.ordering_key, "", lambda one: one.message.ordering_key
        )
        # In microseconds since the epoch.
        self.publish_times: list[int] = _micros(
            self._all(
                inner.publish_time, b"", lambda one: one.message.publish_time.SerializeToString()
            )
        )
        # Keys and values of all messages in one row; those of the message n begin at the place
        # attribute_offsets[n], and end before the next one's.
        entries = inner.attributes[:]
        attributes = wire.AttributeColumns.FromString(b"".join(entries))
        self.attribute_keys: list[str] = attributes.key[:]
        self.attribute_values: list[str] = attributes.value[:]
        self.attribute_offsets: list[int] = _offsets(entries, len(encoded))
        del self._parsed

    def __len__(self) -> int:
        return len(self._encoded)

    def _all(
        self, found: Sequence[T], absent: T, look_up: Callable[[pubsub.ReceivedMessage], T]
    ) -> list[T]:
        """The column of a field with these values; `absent` is what a message without it means."""
        if len(found) == len(self._encoded):
            # A slice is one step of protobuf's, where `list` takes one for each value.
            return list(found[:])
        if not found:
            return [absent] * len(self._encoded)
        self._parsed = self._parsed or [*map(pubsub.ReceivedMessage.FromString, self._encoded)]
        return [look_up(one) for one in self._parsed]


def _micros(stamps: list[bytes]) -> list[int]:
    # Messages that were published together have the same time, which is read once.
    micros = {stamp: _microseconds(stamp) for stamp in set(stamps)}
    return [micros[stamp] for stamp in stamps]


def _microseconds(stamp: bytes) -> int:
    time = Timestamp.FromString(stamp)
    return time.seconds * 1_000_000 + time.nanos // 1_000


def _offsets(entries: Sequence[bytes], messages: int) -> list[int]:
    """Where the attributes of each message begin, among those of all; and where the last end."""
    offsets = [0]
    end = -1
    for earlier_ends in range(messages):
        end = entries.index(b"", end + 1)
        offsets.append(end - earlier_ends)
    return offsets
