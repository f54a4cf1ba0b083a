"""Mailbox: published items for one subscriber, kept until the subscriber acknowledges them."""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable, Iterator
from typing import Protocol

from pullstream_protocol.messages import encoded_pb2 as encoded

from .limits import ChannelLimits

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


class _Queue(Protocol):
    """Items, oldest first."""

    def append(self, item: EncodedEntry, /) -> EncodedEntry | None:
        """Add an item; return the item that it replaces, if any."""

    def popleft(self) -> EncodedEntry: ...

    def __getitem__(self, index: int, /) -> EncodedEntry: ...

    def __iter__(self) -> Iterator[EncodedEntry]: ...

    def __len__(self) -> int: ...


# The queue of all empty mailboxes. Most mailboxes are empty, and an empty deque takes 760 bytes.
# With maxlen 0 it cannot store anything.
_EMPTY: _Queue = deque(maxlen=0)


class Mailbox:
    """Items in the order of their sequence numbers, with limits on bytes and count.

    An item leaves the mailbox when the subscriber acknowledges its number, not when it is sent. If
    a new item does not fit, the oldest items are dropped. The next response begins with the number
    of dropped items, and so does each later one until the subscriber acknowledges that response.

    Attributes:
        newest_only: Whether only the newest message of each key is kept.
        has_lost_failure: Whether a failure was among the dropped items.
        size: Bytes of all items.
    """

    __slots__ = ("_dropped_new", "_dropped_sent", "_dropped_seq", "_items", "_limits",
                 "_sent_seq", "has_lost_failure", "newest_only", "size")  # fmt: skip

    def __init__(self, limits: ChannelLimits) -> None:
        self.newest_only = False
        self.has_lost_failure = False
        self._limits = limits
        self._items = _EMPTY
        self.size = 0
        # The last sequence number of the last response.
        self._sent_seq = 0
        # Dropped items that are not acknowledged: `_dropped_sent` counts the items that the last
        # response contained or reported as dropped, `_dropped_new` the later ones.
        self._dropped_sent = 0
        self._dropped_new = 0
        self._dropped_seq = 0

    def __len__(self) -> int:
        return len(self._items)

    @property
    def has_news(self) -> bool:
        """Whether there is something to send: items, or a report of dropped ones."""
        return len(self._items) > 0 or self._dropped_sent + self._dropped_new > 0

    def keep_newest_only(self) -> None:
        """From now on, keep only the newest message of each key."""
        if not self.newest_only:
            self.newest_only = True
            self._refill(list(self._items))

    def add(self, item: EncodedEntry) -> int:
        """Add `item`; return the number of older items that were dropped for it."""
        self._append(item)
        dropped = 0
        # The newest item is always kept, so that a large message cannot cut off a subscriber.
        while len(self._items) > 1 and (
            self.size > self._limits.mailbox_bytes or len(self._items) > self._limits.mailbox_items
        ):
            self._drop_oldest()
            dropped += 1
        return dropped

    def acknowledge(self, seq: int) -> None:
        """Remove the items up to `seq`, because the subscriber has them."""
        while self._items and self._items[0].seq <= seq:
            self.size -= self._items.popleft().size
        if not self._items:
            self._items = _EMPTY
        if seq >= self._dropped_seq:
            self._dropped_sent = self._dropped_new = 0
        elif seq >= self._sent_seq:
            self._dropped_sent = 0

    def next_items(self, max_items: int, max_bytes: int) -> list[bytes]:
        """Return the oldest items, encoded. At least one is returned, even if it is too large.

        The items stay in the mailbox.

        Args:
            max_items: The most items to return. A report of dropped items is not counted.
            max_bytes: The most bytes to return.
        """
        taken: list[bytes] = []
        size = 0
        dropped = self._dropped_sent + self._dropped_new
        if dropped:
            taken.append(encode_drop(self._dropped_seq, dropped))
            self._dropped_sent, self._dropped_new = dropped, 0
            self._sent_seq = max(self._sent_seq, self._dropped_seq)
            # The report is not a message, so it does not count.
            max_items += 1
        for item in self._items:
            size += len(item.encoded)
            if len(taken) >= max_items or (size > max_bytes and taken):
                break
            taken.append(item.encoded)
            self._sent_seq = max(self._sent_seq, item.seq)
        return taken

    def discard(self, unwanted: Callable[[EncodedEntry], bool]) -> None:
        """Remove the items that the subscriber does not want any more."""
        kept = [item for item in self._items if not unwanted(item)]
        if len(kept) < len(self._items):
            self._refill(kept)

    def _append(self, item: EncodedEntry) -> None:
        if self._items is _EMPTY:
            self._items = _NewestOfEachKey() if self.newest_only else deque()
        replaced = self._items.append(item)
        self.size += item.size - (0 if replaced is None else replaced.size)

    def _drop_oldest(self) -> None:
        item = self._items.popleft()
        self.size -= item.size
        self._dropped_seq = item.seq
        self.has_lost_failure = self.has_lost_failure or item.is_failure
        if item.seq <= self._sent_seq:
            self._dropped_sent += 1
        else:
            self._dropped_new += 1

    def _refill(self, items: list[EncodedEntry]) -> None:
        self._items = _EMPTY
        self.size = 0
        for item in items:
            self._append(item)


class _NewestOfEachKey:
    """A queue that keeps the newest message and the newest failure of each key."""

    def __init__(self) -> None:
        self._items: OrderedDict[tuple[str, str | None, bool], EncodedEntry] = OrderedDict()

    def append(self, item: EncodedEntry) -> EncodedEntry | None:
        place = (item.channel, item.key, item.is_failure)
        # Remove the old item first, so that the new one is at the end.
        replaced = self._items.pop(place, None)
        self._items[place] = item
        return replaced

    def popleft(self) -> EncodedEntry:
        return self._items.popitem(last=False)[1]

    def __getitem__(self, index: int) -> EncodedEntry:
        # Only the oldest item is ever requested.
        return next(iter(self._items.values()))

    def __iter__(self) -> Iterator[EncodedEntry]:
        return iter(self._items.values())

    def __len__(self) -> int:
        return len(self._items)
