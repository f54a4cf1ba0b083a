"""Received messages taken apart by columns."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
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

    columns.proto tells how many messages are read at once. A field that only some of the messages
    have cannot be read so, and is looked up message by message; the others still are. Of one that
    none of them has the list is empty.

    ack_ids, message_ids: have a value for each message in any case.
    publish_times: serialized Timestamps.
    attributes: the serialized entries of all messages, and an empty one after those of each.

    Args:
        encoded: ReceivedMessages as a server serializes them: a field stands there once at most.
    """

    def __init__(self, encoded: Sequence[bytes]) -> None:
        self._encoded = encoded
        self._parsed: list[pubsub.ReceivedMessage] = []
        ack_ids: list[str] = []
        messages: list[bytes] = []
        attempts: list[int] = []
        # A slice is one step of protobuf's, where the field itself takes one for each value.
        for piece in _pieces(encoded):
            outer = wire.ReceivedMessageColumns.FromString(b"".join(piece))
            ack_ids += outer.ack_id[:]
            messages += outer.message[:]
            attempts += outer.delivery_attempt[:]
        messages = self._all(messages, lambda one: one.message.SerializeToString())
        message_ids: list[str] = []
        data: list[bytes] = []
        keys: list[str] = []
        times: list[bytes] = []
        self.attributes: list[bytes] = []
        for piece in _pieces(messages or [b""] * len(encoded)):
            inner = wire.PubsubMessageColumns.FromString(_END.join([*piece, b""]))
            message_ids += inner.message_id[:]
            data += inner.data[:]
            keys += inner.ordering_key[:]
            times += inner.publish_time[:]
            self.attributes += inner.attributes[:]
        missing = [""] * len(encoded)
        self.ack_ids: list[str] = self._all(ack_ids, lambda one: one.ack_id) or missing
        self.message_ids: list[str] = (
            self._all(message_ids, lambda one: one.message.message_id) or missing
        )
        self.delivery_attempts: list[int] = self._all(attempts, lambda one: one.delivery_attempt)
        self.data: list[bytes] = self._all(data, lambda one: one.message.data)
        self.ordering_keys: list[str] = self._all(keys, lambda one: one.message.ordering_key)
        self.publish_times: list[bytes] = self._all(
            times, lambda one: one.message.publish_time.SerializeToString()
        )
        del self._parsed

    def __len__(self) -> int:
        return len(self._encoded)

    def _all(self, found: list[T], look_up: Callable[[pubsub.ReceivedMessage], T]) -> list[T]:
        """The column of a field with these values."""
        if len(found) in (0, len(self._encoded)):
            return found
        self._parsed = self._parsed or [*map(pubsub.ReceivedMessage.FromString, self._encoded)]
        return [look_up(one) for one in self._parsed]


def _pieces(encoded: Sequence[bytes]) -> Iterator[Sequence[bytes]]:
    for start in range(0, len(encoded), _AT_ONCE):
        yield encoded[start : start + _AT_ONCE]
