"""Column-wise parsing of received messages."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

from pullstream_protocol.messages import columns_pb2 as wire
from pullstream_protocol.messages import pubsub_pb2 as pubsub

T = TypeVar("T")

# An attribute entry without content, which no real entry is. It ends the entries of a message.
_END = wire.PubsubMessageColumns(attributes=[b""]).SerializeToString()

# Number of messages that are parsed at once. With more, the allocator could not reuse the memory:
# the system would provide it again each time, which takes longer than filling it.
_AT_ONCE = 512


class Columns:
    """The fields of several messages: one list per field, with one value per message.

    columns.proto explains how several messages are parsed at once. A field that only some of the
    messages have cannot be parsed in this way and is read message by message; the other fields
    still are. If no message has a field, its list is empty.

    Args:
        encoded: ReceivedMessages as serialized by a server, in which each field occurs at most
            once.

    Attributes:
        ack_ids: One value per message, in any case.
        message_ids: One value per message, in any case.
        publish_times: Serialized Timestamps.
        attributes: Serialized entries of all messages; an empty entry ends each message.
        delivery_attempts: The delivery attempts; 0 if a message has none.
        data: The data.
        ordering_keys: The ordering keys.
    """

    def __init__(self, encoded: Sequence[bytes]) -> None:
        self._encoded = encoded
        self._parsed: list[pubsub.ReceivedMessage] = []
        ack_ids: list[str] = []
        messages: list[bytes] = []
        attempts: list[int] = []
        # A slice is one step in protobuf; iterating over the field takes one step per value.
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
        """Return a column; look up each message if only some of the messages have a value."""
        if len(found) in (0, len(self._encoded)):
            return found
        self._parsed = self._parsed or [*map(pubsub.ReceivedMessage.FromString, self._encoded)]
        return [look_up(one) for one in self._parsed]


def _pieces(encoded: Sequence[bytes]) -> Iterator[Sequence[bytes]]:
    for start in range(0, len(encoded), _AT_ONCE):
        yield encoded[start : start + _AT_ONCE]
