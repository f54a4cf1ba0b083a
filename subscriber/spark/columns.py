"""Received messages taken apart by columns."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from protocol.messages import columns_pb2 as wire
from protocol.messages import pubsub_pb2 as pubsub

T = TypeVar("T")

# An entry of the attributes without any content, which no real one is: it ends those of a message.
_END = wire.PubsubMessageColumns(attributes=[b""]).SerializeToString()


# So many messages are read at once. Of more, the memory would be too large to be used again and
# again: the system would hand it out anew each time, which takes longer than to fill it.
_AT_ONCE = 512


class Columns:
    """The fields of some messages, a list for each field with a value for each message.

    Of a field that none of the messages has the list is empty.

    ack_ids, message_ids: have a value for each message in any case.
    publish_times: serialized Timestamps.
    attributes: the serialized entries of all messages, and an empty one after those of each.

    Args:
        encoded: ReceivedMessages as a server serializes them: a field stands there once at most.
    """

    def __init__(self, encoded: Sequence[bytes]) -> None:
        self._count = len(encoded)
        pieces = [
            _Piece(encoded[start : start + _AT_ONCE]) for start in range(0, self._count, _AT_ONCE)
        ]
        counts = [piece.count for piece in pieces]
        missing = [""] * self._count
        self.ack_ids: list[str] = (
            _joined([piece.ack_ids for piece in pieces], counts, "") or missing
        )
        self.message_ids: list[str] = (
            _joined([piece.message_ids for piece in pieces], counts, "") or missing
        )
        self.delivery_attempts: list[int] = _joined(
            [piece.delivery_attempts for piece in pieces], counts, 0
        )
        self.data: list[bytes] = _joined([piece.data for piece in pieces], counts, b"")
        self.ordering_keys: list[str] = _joined(
            [piece.ordering_keys for piece in pieces], counts, ""
        )
        self.publish_times: list[bytes] = _joined(
            [piece.publish_times for piece in pieces], counts, b""
        )
        self.attributes: list[bytes] = []
        for piece in pieces:
            self.attributes += piece.attributes

    def __len__(self) -> int:
        return self._count


class _Piece:
    """Some messages, read at once as columns.proto tells.

    A field that only some of them have cannot be read so, and is looked up message by message; the
    others still are.
    """

    def __init__(self, encoded: Sequence[bytes]) -> None:
        self._encoded = encoded
        self.count: int = len(encoded)
        self._parsed: list[pubsub.ReceivedMessage] = []
        outer = wire.ReceivedMessageColumns.FromString(b"".join(encoded))
        messages = self._all(outer.message, lambda one: one.message.SerializeToString())
        messages = messages or [b""] * self.count
        inner = wire.PubsubMessageColumns.FromString(_END.join([*messages, b""]))
        self.ack_ids: list[str] = self._all(outer.ack_id, lambda one: one.ack_id)
        self.message_ids: list[str] = self._all(
            inner.message_id, lambda one: one.message.message_id
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

    def _all(self, found: Sequence[T], look_up: Callable[[pubsub.ReceivedMessage], T]) -> list[T]:
        """The column of a field with these values."""
        if len(found) in (0, self.count):
            # A slice is one step of protobuf's, where `list` takes one for each value.
            return list(found[:])
        self._parsed = self._parsed or [*map(pubsub.ReceivedMessage.FromString, self._encoded)]
        return [look_up(one) for one in self._parsed]


def _joined(columns: Sequence[list[T]], counts: Sequence[int], absent: T) -> list[T]:
    """The columns of pieces with so many messages each, one behind the other."""
    whole: list[T] = []
    if any(columns):
        for column, count in zip(columns, counts, strict=True):
            whole += column or [absent] * count
    return whole
