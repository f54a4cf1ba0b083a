"""Record: a message of a topic's log, with its sequence number."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timezone

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
