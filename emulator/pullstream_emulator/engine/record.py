"""A published message, shared by its subscriptions, snapshots and topic."""

from __future__ import annotations

from pullstream_protocol.messages import pubsub_pb2 as pubsub


class Record:
    """One published message, encoded once and shared by its subscriptions, snapshots and topic.

    Attributes:
        seq: Its sequence number in the topic.
        ordering_key: Its ordering key, "" if it has none.
        encoded: The complete serialized PubsubMessage, with its ID and publish time.
        size: Its length in bytes, which flow control counts.
        publish_ms: The publish time, in milliseconds since the epoch.
        references: Number of references: of subscriptions, snapshots, and the topic itself. Log
            counts them.
    """

    __slots__ = ("encoded", "ordering_key", "publish_ms", "references", "seq", "size")

    def __init__(self, seq: int, ordering_key: str, encoded: bytes, publish_ms: int) -> None:
        self.seq = seq
        self.ordering_key = ordering_key
        self.encoded = encoded
        self.size = len(encoded)
        self.publish_ms = publish_ms
        self.references = 0

    def message(self) -> pubsub.PubsubMessage:
        """Decode the message, with its ID and publish time."""
        return pubsub.PubsubMessage.FromString(self.encoded)

    @classmethod
    def decode(cls, seq: int, encoded: bytes) -> Record:
        """Return the record of an encoded message."""
        message = pubsub.PubsubMessage.FromString(encoded)
        time = message.publish_time
        return cls(
            seq, message.ordering_key, encoded, time.seconds * 1000 + time.nanos // 1_000_000
        )
