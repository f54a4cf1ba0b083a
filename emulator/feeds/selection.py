"""Which records of a feed a reader wants, and how much of each."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from emulator.engine import Record
from emulator.engine.filter import Filter, compile_filter
from emulator.engine.settings import MAX_FILTER_BYTES
from emulator.refusals import too_large, too_small
from protocol.messages import pubsub_pb2 as pubsub

from .feed import Feed

DEFAULT_MESSAGES = 256
MAX_MESSAGES = 1000
DEFAULT_BYTES = 256 * 1024
MAX_BYTES = 8 * 1024 * 1024

# Most records that are parsed for one answer, however few of them are wanted: a few milliseconds.
MAX_PARSED = 1000

# The attributes that are a record's tag and node.
TAG = "tag"
NODE = "node"


class Batch(NamedTuple):
    """Serialized messages, and the number up to which records were looked at for them."""

    messages: Sequence[bytes]
    next_seq: int


class Limits(NamedTuple):
    """How much one answer, or one frame, may hold; one message always fits."""

    messages: int
    bytes: int

    @classmethod
    def of(cls, messages: int, size: int) -> Limits:
        """Those that a request asks for; 0 is the default, and what is above the most is the most.

        Raises:
            InvalidArgument: a number is negative.
        """
        if messages < 0:
            raise too_small("max_messages", messages, 0)
        if size < 0:
            raise too_small("max_bytes", size, 0)
        return cls(
            min(messages or DEFAULT_MESSAGES, MAX_MESSAGES), min(size or DEFAULT_BYTES, MAX_BYTES)
        )


def filter_of(text: str) -> Filter | None:
    """What `text` lets pass; None: everything.

    Raises:
        InvalidArgument: it is too long, or not of the language.
    """
    if len(text.encode()) > MAX_FILTER_BYTES:
        raise too_large("filter", len(text.encode()), MAX_FILTER_BYTES)
    return compile_filter(text) if text.strip() else None


class Selection:
    """A reader's filter, the node whose records it is spared, and whether it wants data.

    Without any of these a record goes out as the bytes it was stored as.

    Raises:
        InvalidArgument: the filter is too long, or not of the language.
    """

    def __init__(
        self, filter_text: str = "", exclude_node: str = "", *, include_data: bool = True
    ) -> None:
        self._accepts = filter_of(filter_text)
        self._exclude_node = exclude_node
        self._include_data = include_data

    def read(self, feed: Feed, after: int, limits: Limits) -> Batch:
        """The next batch behind `after`, which lies behind no gap."""
        node = self._exclude_node if feed.settings.dedupe_node else ""
        if self._accepts is None and not node and self._include_data:
            return _read_all(feed, after, limits)
        records = feed.after(after, MAX_PARSED)
        messages: list[bytes] = []
        size = 0
        next_seq = feed.examined(after, records, MAX_PARSED)
        for record in records:
            encoded = self._pick(record, node)
            if encoded is not None:
                size += len(encoded)
                if messages and (len(messages) == limits.messages or size > limits.bytes):
                    next_seq = record.seq - 1
                    break
                messages.append(encoded)
        return Batch(messages, next_seq)

    def _pick(self, record: Record, node: str) -> bytes | None:
        """What the reader gets of a record, if anything."""
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


def _read_all(feed: Feed, after: int, limits: Limits) -> Batch:
    records = feed.after(after, limits.messages)
    size = 0
    for index, record in enumerate(records):
        size += record.size
        if size > limits.bytes and index:
            records = records[:index]
            return Batch([each.encoded for each in records], records[-1].seq)
    next_seq = feed.examined(after, records, limits.messages)
    return Batch([each.encoded for each in records], next_seq)
