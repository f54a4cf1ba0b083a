"""A published message, and its way through one subscription."""

from __future__ import annotations

from typing import TYPE_CHECKING

from protocol.messages import pubsub_pb2 as pubsub

if TYPE_CHECKING:
    from .consumer import Consumer
    from .ordering import KeyLane


class Record:
    """One published message, encoded once and shared by everybody who keeps it.

    encoded: a complete serialized PubsubMessage, with its id and publish time.
    size: its length in bytes, the number that flow control counts.
    publish_ms: the publish time, in milliseconds since the epoch.
    holders: how many keep it: subscriptions, snapshots, the topic itself. Log counts them.
    """

    __slots__ = ("encoded", "holders", "ordering_key", "publish_ms", "seq", "size")

    def __init__(self, seq: int, ordering_key: str, encoded: bytes, publish_ms: int) -> None:
        self.seq = seq
        self.ordering_key = ordering_key
        self.encoded = encoded
        self.size = len(encoded)
        self.publish_ms = publish_ms
        self.holders = 0

    def message(self) -> pubsub.PubsubMessage:
        return pubsub.PubsubMessage.FromString(self.encoded)

    @classmethod
    def decode(cls, seq: int, encoded: bytes) -> Record:
        """The record of a message that was encoded before."""
        message = pubsub.PubsubMessage.FromString(encoded)
        time = message.publish_time
        return cls(
            seq, message.ordering_key, encoded, time.seconds * 1000 + time.nanos // 1_000_000
        )


class Delivery:
    """One record in one subscription, from publish until it is acknowledged for good.

    attempts: deliveries that failed so far (nacked or expired; given back does not count).
    holder: who has it under lease now; None while it waits.
    ack_id: of the newest lease, "" before the first.
    number: of the newest lease, among those of the subscription; 0 before the first.
    acked: acknowledged, but kept: behind an unfinished message of its key, or lying in a queue.
    lane: the queue of its ordering key; None in an unordered subscription or without a key.
    """

    __slots__ = ("ack_id", "acked", "attempts", "holder", "lane", "number", "record")

    def __init__(self, record: Record, lane: KeyLane | None) -> None:
        self.record = record
        self.lane = lane
        self.attempts = 0
        self.holder: Consumer | None = None
        self.ack_id = ""
        self.number = 0
        self.acked = False
