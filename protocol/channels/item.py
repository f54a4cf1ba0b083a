"""What is published on a channel, encoded once and shared by every mailbox it lies in."""

from __future__ import annotations

from protocol.messages import encoded_pb2 as encoded

# What keeping an item costs beside its bytes, about: the object, its place in a mailbox.
OVERHEAD_BYTES = 150


class Item:
    """One message, or one failure; never changed.

    seq: counts what is published on the publisher.
    key: None: every key of the channel, which only a failure is about.
    encoded: a serialized PollResponse.Item.
    size: bytes that it counts in a mailbox.
    """

    __slots__ = ("channel", "encoded", "is_failure", "key", "seq", "size")

    def __init__(
        self, seq: int, channel: str, key: str | None, encoded_item: bytes, *, is_failure: bool
    ) -> None:
        self.seq = seq
        self.channel = channel
        self.key = key
        self.encoded = encoded_item
        self.size = len(encoded_item) + OVERHEAD_BYTES
        self.is_failure = is_failure

    @classmethod
    def of_message(cls, seq: int, channel: str, key: str, message: bytes) -> Item:
        """`message` is a serialized PubsubMessage."""
        item = encoded.EncodedItem(seq=seq, channel=channel, key=key, message=message)
        return cls(seq, channel, key, item.SerializeToString(), is_failure=False)

    @classmethod
    def of_failure(cls, seq: int, channel: str, key: str | None, reason: str) -> Item:
        item = encoded.EncodedItem(seq=seq, channel=channel, key=key, failure=reason)
        return cls(seq, channel, key, item.SerializeToString(), is_failure=True)


def encode_drop(seq: int, count: int) -> bytes:
    """The item that tells of so many dropped ones, up to the number `seq`."""
    return encoded.EncodedItem(seq=seq, dropped=count).SerializeToString()
