"""A published message, and its way through one subscription."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .consumer import Consumer
    from .ordering import KeyLane


class Record:
    """One published message, encoded once and shared by every subscription that holds it.

    `encoded` is a complete serialized PubsubMessage, with its id and publish time; `size` is its
    length in bytes, the number that flow control counts.
    """

    __slots__ = ("encoded", "ordering_key", "seq", "size")

    def __init__(self, seq: int, ordering_key: str, encoded: bytes) -> None:
        self.seq = seq
        self.ordering_key = ordering_key
        self.encoded = encoded
        self.size = len(encoded)


class Delivery:
    """One record in one subscription, from publish until it is acknowledged for good.

    attempts: deliveries that failed so far (nacked or expired; given back does not count).
    holder: who has it under lease now; None while it waits.
    ack_id: of the newest lease, "" before the first.
    acked: acknowledged, but kept: behind an unfinished message of its key, or lying in a queue.
    lane: the queue of its ordering key; None in an unordered subscription or without a key.
    """

    __slots__ = ("ack_id", "acked", "attempts", "holder", "lane", "record")

    def __init__(self, record: Record, lane: KeyLane | None) -> None:
        self.record = record
        self.lane = lane
        self.attempts = 0
        self.holder: Consumer | None = None
        self.ack_id = ""
        self.acked = False
