"""What was published for one subscriber, until it has said that it has it."""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable, Iterator
from typing import Protocol

from .item import Item, encode_drop
from .limits import ChannelLimits


class _Queue(Protocol):
    """Items, oldest first."""

    def append(self, item: Item, /) -> Item | None:
        """Add an item; returns the one that it takes the place of, if it does."""

    def popleft(self) -> Item: ...

    def __getitem__(self, index: int, /) -> Item: ...

    def __iter__(self) -> Iterator[Item]: ...

    def __len__(self) -> int: ...


# What an empty mailbox has, shared by all of them: most are, and a deque of one's own takes 760
# bytes even then. It takes nothing in.
_EMPTY: _Queue = deque(maxlen=0)


class Mailbox:
    """Items in order of their numbers, within limits of bytes and count.

    An item leaves it when the subscriber acknowledges its number, not when it is sent. What does
    not fit drives out the oldest; how many were dropped is told at the head of the next reply, and
    of each one until that number is acknowledged.

    has_lost_failure: a failure was among them.
    """

    __slots__ = ("_bytes", "_dropped_new", "_dropped_sent", "_dropped_seq", "_items", "_limits",
                 "_sent_seq", "has_lost_failure", "newest_only")  # fmt: skip

    def __init__(self, limits: ChannelLimits) -> None:
        self.newest_only = False
        self.has_lost_failure = False
        self._limits = limits
        self._items = _EMPTY
        self._bytes = 0
        # The last number of the last reply.
        self._sent_seq = 0
        # Dropped and not acknowledged: what that reply had or told of, and what has come since.
        self._dropped_sent = 0
        self._dropped_new = 0
        self._dropped_seq = 0

    def __len__(self) -> int:
        return len(self._items)

    @property
    def size(self) -> int:
        """Bytes that its items count."""
        return self._bytes

    @property
    def has_news(self) -> bool:
        """Whether there is something to tell: items, or that some were dropped."""
        return len(self._items) > 0 or self._dropped_sent + self._dropped_new > 0

    def keep_newest_only(self) -> None:
        """From now on keep no more than the newest message of each key."""
        if not self.newest_only:
            self.newest_only = True
            self._refill(list(self._items))

    def add(self, item: Item) -> int:
        """Take `item`; returns how many older ones were dropped for it."""
        self._append(item)
        dropped = 0
        # The newest always has a place, so that a subscriber cannot be cut off by a large message.
        while len(self._items) > 1 and (
            self._bytes > self._limits.mailbox_bytes
            or len(self._items) > self._limits.mailbox_items
        ):
            self._drop_oldest()
            dropped += 1
        return dropped

    def acknowledge(self, seq: int) -> None:
        """The subscriber has everything up to `seq`."""
        while self._items and self._items[0].seq <= seq:
            self._bytes -= self._items.popleft().size
        if not self._items:
            self._items = _EMPTY
        if seq >= self._dropped_seq:
            self._dropped_sent = self._dropped_new = 0
        elif seq >= self._sent_seq:
            self._dropped_sent = 0

    def next_items(self, max_items: int, max_bytes: int) -> list[bytes]:
        """The oldest items, encoded, within limits, but one at least. They stay."""
        taken: list[bytes] = []
        size = 0
        told = self._dropped_sent + self._dropped_new
        if told:
            taken.append(encode_drop(self._dropped_seq, told))
            self._dropped_sent, self._dropped_new = told, 0
            self._sent_seq = max(self._sent_seq, self._dropped_seq)
            # It is no message, and takes the place of none.
            max_items += 1
        for item in self._items:
            size += len(item.encoded)
            if len(taken) >= max_items or (size > max_bytes and taken):
                break
            taken.append(item.encoded)
            self._sent_seq = max(self._sent_seq, item.seq)
        return taken

    def discard(self, unwanted: Callable[[Item], bool]) -> None:
        """Let go of items that the subscriber has no interest in any more."""
        kept = [item for item in self._items if not unwanted(item)]
        if len(kept) < len(self._items):
            self._refill(kept)

    def _append(self, item: Item) -> None:
        if self._items is _EMPTY:
            self._items = _NewestOfEachKey() if self.newest_only else deque()
        replaced = self._items.append(item)
        self._bytes += item.size - (0 if replaced is None else replaced.size)

    def _drop_oldest(self) -> None:
        item = self._items.popleft()
        self._bytes -= item.size
        self._dropped_seq = item.seq
        self.has_lost_failure = self.has_lost_failure or item.is_failure
        if item.seq <= self._sent_seq:
            self._dropped_sent += 1
        else:
            self._dropped_new += 1

    def _refill(self, items: list[Item]) -> None:
        self._items = _EMPTY
        self._bytes = 0
        for item in items:
            self._append(item)


class _NewestOfEachKey:
    """A queue with one place for each key's message. Failures have places of their own."""

    def __init__(self) -> None:
        self._items: OrderedDict[tuple[str, str | None, bool], Item] = OrderedDict()

    def append(self, item: Item) -> Item | None:
        place = (item.channel, item.key, item.is_failure)
        # Taken out first: the new one belongs at the end.
        replaced = self._items.pop(place, None)
        self._items[place] = item
        return replaced

    def popleft(self) -> Item:
        return self._items.popitem(last=False)[1]

    def __getitem__(self, index: int) -> Item:
        # The oldest is all that anybody asks for.
        return next(iter(self._items.values()))

    def __iter__(self) -> Iterator[Item]:
        return iter(self._items.values())

    def __len__(self) -> int:
        return len(self._items)
