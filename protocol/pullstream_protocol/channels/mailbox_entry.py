"""Encoded messages and failures of a channel. All mailboxes share one object for each of them."""

from __future__ import annotations

from pullstream_protocol.messages import encoded_pb2 as encoded

# The approximate memory of an item in addition to its data: the object, and its entry in a mailbox.
OVERHEAD_BYTES = 150


class EncodedEntry:
    """One message or one failure. Immutable.

    Attributes:
        seq: The sequence number. The publisher numbers all its items together.
        channel: The name of the channel.
        key: The ordering key. None, only for a failure: the whole channel.
        encoded: The serialized PollResponse.Item.
        size: The bytes that count in a mailbox.
        is_failure: Whether it is a failure.
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
    def of_message(cls, seq: int, channel: str, key: str, message: bytes) -> EncodedEntry:
        """Return the item of a message.

        Args:
            seq: The sequence number.
            channel: The name of the channel.
            key: The ordering key. "" if the message has none.
            message: The serialized PubsubMessage.
        """
        item = encoded.EncodedItem(seq=seq, channel=channel, key=key, message=message)
        return cls(seq, channel, key, item.SerializeToString(), is_failure=False)

    @classmethod
    def of_failure(cls, seq: int, channel: str, key: str | None, reason: str) -> EncodedEntry:
        """Return the item of a failure.

        Args:
            seq: The sequence number.
            channel: The name of the channel.
            key: The ordering key. None: the whole channel.
            reason: The text for the subscribers.
        """
        item = encoded.EncodedItem(seq=seq, channel=channel, key=key, failure=reason)
        return cls(seq, channel, key, item.SerializeToString(), is_failure=True)


def encode_drop(seq: int, count: int) -> bytes:
    """Return the encoded item that reports `count` dropped items, up to the number `seq`."""
    return encoded.EncodedItem(seq=seq, dropped=count).SerializeToString()
