"""Records of a log, ranges of them as reads and streams return them, and the live buffer."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone

from pullstream.logs.feeds.frames import Gap
from pullstream_protocol.messages import pubsub_pb2 as pubsub


class Record:
    """A message that is read by its position in the log. It has no lease and needs no ack.

    Attributes:
        seq: The sequence number in the topic. Numbers start from 1 and have no holes.
        topic: The full name of the topic.
    """

    __slots__ = ("_message", "seq", "topic")

    def __init__(self, message: pubsub.PubsubMessage, topic: str) -> None:
        self._message = message
        self.seq: int = int(message.message_id)
        self.topic: str = topic

    @property
    def message_id(self) -> str:
        """`seq` in decimal."""
        return self._message.message_id

    @property
    def data(self) -> bytes:
        """The message's data."""
        return self._message.data

    @property
    def attributes(self) -> Mapping[str, str]:
        """The message's attributes by name."""
        return self._message.attributes

    @property
    def ordering_key(self) -> str:
        """The ordering key, or "" if the message was published without one."""
        return self._message.ordering_key

    @property
    def publish_time(self) -> datetime:
        """The time at which the server accepted the message, in UTC."""
        return self._message.publish_time.ToDatetime(tzinfo=timezone.utc)

    def __repr__(self) -> str:
        data = self.data
        shown = data if len(data) <= 50 else data[:50] + b"..."
        return f"Record(seq={self.seq}, data={shown!r}, attributes={dict(self.attributes)!r})"


@dataclass(frozen=True, slots=True)
class RecordRange:
    """A range of sequence numbers, and the records in it.

    Attributes:
        from_seq: The number before the first number of the range.
        to_seq: The last number of the range.
        records: The records. Numbers of the range that have no record were filtered out or deleted.
        size: Size on the wire, in bytes.
    """

    from_seq: int
    to_seq: int
    records: Sequence[Record] = ()
    size: int = 0

    @property
    def weight(self) -> int:
        """The number of records that count in a buffer. An empty range counts as one record."""
        return max(len(self.records), 1)


@dataclass(frozen=True, slots=True)
class ReadResult:
    """The result of one read.

    Attributes:
        record_range: The range of records that was read.
        head_seq: The newest number of the log.
        caught_up: Whether the range ends at the end of the log.
        epoch: The epoch of the topic, to which all these numbers belong.
        gap: The gap before the range, if there is one.
    """

    record_range: RecordRange
    head_seq: int
    caught_up: bool
    epoch: int
    gap: Gap | None = None


class LiveBuffer:
    """Ranges of records in order, with limits on records and bytes.

    When the buffer is full, the oldest range is dropped. The hole is then before the next range in
    the buffer, where the follower detects it at once. If the newest range were dropped, the
    follower would detect the hole only when another range arrives, which may never happen.

    The newest range is kept even if it alone exceeds the limits. Not thread-safe.
    """

    def __init__(self, max_records: int, max_bytes: int) -> None:
        self._max_records = max_records
        self._max_bytes = max_bytes
        self._ranges: deque[RecordRange] = deque()
        self._records = 0
        self._bytes = 0

    def __len__(self) -> int:
        """Return the number of records in the buffer."""
        return self._records

    @property
    def first(self) -> RecordRange | None:
        """The oldest range, or None if the buffer is empty."""
        return self._ranges[0] if self._ranges else None

    def add(self, record_range: RecordRange) -> None:
        """Add the newest range. Drops older ranges if the buffer is full."""
        self._ranges.append(record_range)
        self._records += record_range.weight
        self._bytes += record_range.size
        while len(self._ranges) > 1 and not self._fits():
            self.take()

    def take(self) -> RecordRange:
        """Remove and return the oldest range."""
        record_range = self._ranges.popleft()
        self._records -= record_range.weight
        self._bytes -= record_range.size
        return record_range

    def clear(self) -> None:
        """Remove all ranges."""
        self._ranges.clear()
        self._records = self._bytes = 0

    def _fits(self) -> bool:
        return self._records <= self._max_records and self._bytes <= self._max_bytes
