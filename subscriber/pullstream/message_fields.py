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


class MergedColumns:
    """The fields of all messages of some responses, as in Columns.

    They are parsed in one step, which takes half the time. But for a field that only some of the
    messages have, and for attributes whose keys are not the same in all messages, it must be known
    where a message begins.

    Args:
        responses: StreamingPullResponses or PullResponses, serialized.
        count: The number of their messages.
        encoded: Returns the messages, serialized.
    """

    def __init__(
        self, responses: Sequence[bytes], count: int, encoded: Callable[[], Sequence[bytes]]
    ) -> None:
        merged = wire.MergedResponse.FromString(b"".join(responses)).received_messages
        message = merged.message
        self._count = count
        self._encoded = encoded
        self._one_by_one: Columns | None = None
        self._entries: list[bytes] = message.attributes[:]
        missing = [""] * count
        self.ack_ids: list[str] = self._all(merged.ack_id[:], "ack_ids") or missing
        self.message_ids: list[str] = self._all(message.message_id[:], "message_ids") or missing
        self.delivery_attempts: list[int] = self._all(
            merged.delivery_attempt[:], "delivery_attempts"
        )
        self.data: list[bytes] = self._all(message.data[:], "data")
        self.ordering_keys: list[str] = self._all(message.ordering_key[:], "ordering_keys")
        self.publish_times: list[bytes] = self._all(message.publish_time[:], "publish_times")

    def __len__(self) -> int:
        return self._count

    @property
    def attributes(self) -> list[bytes]:
        """Serialized entries of all messages; an empty entry ends each message."""
        if not self._entries:
            return [b""] * self._count
        keys = set(keys_and_values([*set(self._entries)])[0])
        # No message has a key twice, so none has more entries than there are keys. If there are as
        # many entries as messages times keys, each message has every key.
        each = len(keys)
        if len(self._entries) != each * self._count:
            return self._exact().attributes
        ended = [b""] * (self._count * (each + 1))
        for place in range(each):
            ended[place :: each + 1] = self._entries[place::each]
        return ended

    def _all(self, found: list[T], column: str) -> list[T]:
        """Return a column; read the messages one by one if only some of them have a value."""
        if len(found) in (0, self._count):
            return found
        exact: list[T] = getattr(self._exact(), column)
        return exact

    def _exact(self) -> Columns:
        if self._one_by_one is None:
            self._one_by_one = Columns(self._encoded())
        return self._one_by_one


def keys_and_values(entries: Sequence[bytes]) -> tuple[Sequence[str], Sequence[str]]:
    """Return the keys and the values of serialized attribute entries."""
    read = wire.AttributeColumns.FromString(b"".join(entries))
    if len(read.key) == len(read.value) == len(entries):
        return read.key[:], read.value[:]
    # A server may leave out empty values; then values cannot be matched to entries by position.
    each = [wire.AttributeColumns.FromString(entry) for entry in entries]
    return ["".join(one.key) for one in each], ["".join(one.value) for one in each]


def _pieces(encoded: Sequence[bytes]) -> Iterator[Sequence[bytes]]:
    for start in range(0, len(encoded), _AT_ONCE):
        yield encoded[start : start + _AT_ONCE]
