"""Selection of a feed's records for a reader: filter, excluded node, and limits."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from pullstream_emulator.engine import Record
from pullstream_emulator.engine.settings.resource_settings import MAX_FILTER_BYTES
from pullstream_emulator.error_texts import too_large, too_small
from pullstream_protocol.filter import Filter, compile_filter
from pullstream_protocol.messages import pubsub_pb2 as pubsub

from .feed import Feed

DEFAULT_MESSAGES = 256
MAX_MESSAGES = 1000
DEFAULT_BYTES = 256 * 1024
MAX_BYTES = 8 * 1024 * 1024

# Most records parsed for one response, including unwanted ones; takes a few milliseconds.
MAX_PARSED = 1000

# Most bytes parsed for one response, because parsing copies the data. One record is always parsed.
MAX_PARSED_BYTES = 4 * 1024 * 1024

# The attributes that hold a record's tag and node.
TAG = "tag"
NODE = "node"


class SelectedRecords(NamedTuple):
    """Records for a response.

    Attributes:
        messages: The serialized messages.
        next_seq: The last number that was examined.
    """

    messages: Sequence[bytes]
    next_seq: int


class Limits(NamedTuple):
    """Limits of one response or frame. One message always fits.

    Attributes:
        messages: Maximum number of messages.
        bytes: Maximum size in bytes.
    """

    messages: int
    bytes: int

    @classmethod
    def clamped(cls, messages: int, size: int) -> Limits:
        """Return the limits of a request; 0 means the default, and large values are capped.

        Raises:
            InvalidArgument: A number is negative.
        """
        if messages < 0:
            raise too_small("max_messages", messages, 0)
        if size < 0:
            raise too_small("max_bytes", size, 0)
        return cls(
            min(messages or DEFAULT_MESSAGES, MAX_MESSAGES), min(size or DEFAULT_BYTES, MAX_BYTES)
        )


def filter_of(text: str) -> Filter | None:
    """Compile a filter expression; return None if it is empty and accepts everything.

    Raises:
        InvalidArgument: The expression is too long or malformed.
    """
    if len(text.encode()) > MAX_FILTER_BYTES:
        raise too_large("filter", len(text.encode()), MAX_FILTER_BYTES)
    return compile_filter(text) if text.strip() else None


class Selection:
    """A reader's filter, the node whose records it excludes, and whether it wants data.

    Without any of these, records are sent as the bytes in which they are stored.

    Args:
        filter_text: Filter expression; empty accepts every record.
        exclude_node: Skip the records of this node; empty skips none.
        include_data: Include data and all attributes; otherwise only tag and node.

    Raises:
        InvalidArgument: The filter is too long or malformed.
    """

    def __init__(
        self, filter_text: str = "", exclude_node: str = "", *, include_data: bool = True
    ) -> None:
        self._accepts = filter_of(filter_text)
        self._exclude_node = exclude_node
        self._include_data = include_data

    def read(self, feed: Feed, after: int, limits: Limits) -> SelectedRecords:
        """Return the next batch of records. The caller checks for a gap first.

        Args:
            feed: The feed.
            after: The reader has all records up to this number.
            limits: Limits of the batch.
        """
        node = self._exclude_node if feed.settings.dedupe_node else ""
        if self._accepts is None and not node and self._include_data:
            return _read_all(feed, after, limits)
        records = feed.after(after, MAX_PARSED)
        messages: list[bytes] = []
        size = parsed = 0
        next_seq = feed.examined(after, records, MAX_PARSED)
        for record in records:
            parsed += record.size
            if parsed > MAX_PARSED_BYTES and record is not records[0]:
                next_seq = record.seq - 1
                break
            encoded = self._pick(record, node)
            if encoded is not None:
                size += len(encoded)
                if messages and (len(messages) == limits.messages or size > limits.bytes):
                    next_seq = record.seq - 1
                    break
                messages.append(encoded)
        return SelectedRecords(messages, next_seq)

    def _pick(self, record: Record, node: str) -> bytes | None:
        """Return the reader's form of a record; None if the reader does not want it."""
        message = record.message()
        attributes = message.attributes
        if node and attributes.get(NODE) == node:
            return None
        if self._accepts is not None and not self._accepts(attributes):
            return None
        if self._include_data:
            return record.encoded
        kept = {name: attributes[name] for name in (TAG, NODE) if name in attributes}
        return pubsub.PubsubMessage(
            message_id=message.message_id,
            publish_time=message.publish_time,
            ordering_key=message.ordering_key,
            attributes=kept,
        ).SerializeToString()


def _read_all(feed: Feed, after: int, limits: Limits) -> SelectedRecords:
    records = feed.after(after, limits.messages)
    size = 0
    for index, record in enumerate(records):
        size += record.size
        if size > limits.bytes and index:
            records = records[:index]
            return SelectedRecords([each.encoded for each in records], records[-1].seq)
    next_seq = feed.examined(after, records, limits.messages)
    return SelectedRecords([each.encoded for each in records], next_seq)
