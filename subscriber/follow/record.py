"""Record: a message of a topic's log, with its number."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timezone

from protocol.messages import pubsub_pb2 as pubsub


class Record:
    """A message, read by its place in the log and not by a lease: there is nothing to acknowledge.

    seq: its number in the topic, from 1; with the topic's other records it has no holes.
    topic: full name.
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
        return self._message.data

    @property
    def attributes(self) -> Mapping[str, str]:
        return self._message.attributes

    @property
    def ordering_key(self) -> str:
        """The key that it was published with, "" if there was none."""
        return self._message.ordering_key

    @property
    def publish_time(self) -> datetime:
        """When the server took the message, in UTC."""
        return self._message.publish_time.ToDatetime(tzinfo=timezone.utc)

    def __repr__(self) -> str:
        data = self.data
        shown = data if len(data) <= 50 else data[:50] + b"..."
        return f"Record(seq={self.seq}, data={shown!r}, attributes={dict(self.attributes)!r})"
