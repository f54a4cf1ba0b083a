"""Rules for the leases of an ingestion: the state of each message, and when to acknowledge."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, chain, repeat, takewhile
from typing import Protocol, cast

from pullstream.message import BYTES_EACH, Message
from pullstream.spark.spool.message_keys import Key, key_of, keys_of

# The buffer is compacted when its gaps outnumber its messages by more than this.
_EMPTY_PLACES = 1000


class Done(Protocol):
    """The committed messages."""

    def __contains__(self, key: Key, /) -> bool: ...

    def isdisjoint(self, keys: Iterable[Key], /) -> bool:
        """Return whether none of the keys is committed."""


@dataclass(slots=True)
class ArrivedGroup:
    """Classification of newly received messages.

    Attributes:
        fresh: Number of messages that were added to the buffer.
        buffered: Messages that are in the buffer now: the fresh ones, and redeliveries of buffered
            ones.
        done: Messages that are already committed and may be acknowledged at once.
        outdated: Earlier deliveries that a redelivery replaces. No request for them is sent any
            more.
    """

    fresh: int = 0
    buffered: list[Message] = field(default_factory=list)
    done: list[Message] = field(default_factory=list)
    outdated: list[Message] = field(default_factory=list)


class LeaseLedger:
    """Every message that is received and not committed, by id. Not thread-safe.

    A message is *buffered*, then in a *segment*, then *committed*. Only the method `committed`
    makes this last step and hands messages out to be acknowledged. Each id has one lease: the lease
    of the newest delivery.

    Frequent operations work on whole lists of ids and look up each id once, because among hundreds
    of thousands of ids the lookups are the main cost. Rare operations, such as a redelivery or a
    lost lease, may take longer.
    """

    def __init__(self, done: Done) -> None:
        self._done = done
        # By id: the message that holds the lease. None: a lease of an earlier process that is not
        # adopted yet.
        self._held: dict[Key, Message | None] = {}
        # The ids of the buffer in the order of arrival. A redelivery takes the position of the
        # earlier delivery. Lost messages leave a gap: `_lost[key]` counts how many of the first
        # entries of that key to skip.
        self._buffer: list[Key] = []
        self._lost: Counter[Key] = Counter()
        # Size of the buffered messages.
        self._bytes = 0
        self._segments: dict[int, list[Key]] = {}
        # The keys of all segments; None after a change, until they are needed.
        self._spooled_keys: frozenset[Key] | None = None
        # Deliveries that made no new row, because their message is already here or is committed.
        self.suppressed: int = 0

    @property
    def buffered(self) -> int:
        """Number of messages that are not in a segment yet."""
        return len(self._held) - self.spooled

    @property
    def spooled(self) -> int:
        """Messages in segments that are not committed."""
        return sum(map(len, self._segments.values()))

    def spooled_up_to(self, seq: int) -> int:
        """Return the number of messages in segments up to `seq` that the done index lacks."""
        return sum(len(ids) for number, ids in self._segments.items() if number <= seq)

    @property
    def segments(self) -> list[int]:
        """The numbers of the segments that are not committed, in order."""
        return sorted(self._segments)

    def arrived(self, messages: Sequence[Message], message_ids: Sequence[str]) -> ArrivedGroup:
        """Add received messages.

        Args:
            messages: The messages in the order of arrival.
            message_ids: Their ids, which the caller has already decoded.
        """
        before, keys = len(self._held), keys_of(message_ids)
        if self._knows_none(keys):
            self._held.update(zip(keys, messages, strict=True))
            if len(self._held) == before + len(messages):
                self._buffer += keys
                self._bytes += sum(map(BYTES_EACH, messages))
                return ArrivedGroup(len(messages), list(messages))
            # A message is there twice; add them one by one.
            for key in keys:
                self._held.pop(key, None)
        arrival = ArrivedGroup()
        for message in messages:
            self._sort(message, arrival)
        self.suppressed += len(messages) - arrival.fresh
        return arrival

    def _knows_none(self, keys: Sequence[Key]) -> bool:
        """Return whether all keys are new, as they nearly always are."""
        return self._held.keys().isdisjoint(keys) and self._done.isdisjoint(keys)

    def _sort(self, message: Message, arrival: ArrivedGroup) -> None:
        key = key_of(message.message_id)
        if key in self._held:
            outdated, self._held[key] = self._held[key], message
            if outdated is not None:
                arrival.outdated.append(outdated)
                if not self._is_spooled(key):
                    self._bytes += message.batch.bytes_each - outdated.batch.bytes_each
                    arrival.buffered.append(message)
        elif key in self._done:
            arrival.done.append(message)
        else:
            self._held[key] = message
            self._buffer.append(key)
            self._bytes += message.batch.bytes_each
            arrival.fresh += 1
            arrival.buffered.append(message)

    def _is_spooled(self, key: Key) -> bool:
        """Return whether a held message is in a segment; otherwise it is in the buffer."""
        if self._spooled_keys is None:
            self._spooled_keys = frozenset(chain.from_iterable(self._segments.values()))
        return key in self._spooled_keys

    def has(self, messages: int, size: int) -> bool:
        """Return whether the buffer has this many messages or bytes."""
        return self.buffered >= messages or self._bytes >= size

    def lost(self, messages: Iterable[Message]) -> None:
        """Remove messages whose leases are lost from the buffer. They will be redelivered.

        Messages in segments stay.
        """
        for message in messages:
            key = key_of(message.message_id)
            if self._held.get(key) is message and not self._is_spooled(key):
                del self._held[key]
                self._lost[key] += 1
                self._bytes -= message.batch.bytes_each
        if len(self._buffer) > 2 * self.buffered + _EMPTY_PLACES:
            self._close_up()

    def _close_up(self) -> None:
        """Remove the gaps from the buffer."""
        if self._lost:
            lost, self._lost = self._lost, Counter()
            self._buffer = list(_without_first(self._buffer, lost))

    def cut(self, seq: int, max_messages: int, max_bytes: int) -> list[Message]:
        """Move the first messages of the buffer to the segment `seq`.

        The messages belong to the segment at once, so a redelivery finds them there while the file
        is still being written.

        Args:
            seq: Number of the segment.
            max_messages: Maximum number of messages.
            max_bytes: Maximum size in bytes; a single larger message still passes.

        Returns:
            The messages. If there are none, no segment is added.
        """
        self._close_up()
        count = min(self._within(max_bytes), max_messages, len(self._buffer))
        if count == 0:
            return []
        keys = self._buffer[:count]
        del self._buffer[:count]
        messages = self._messages(keys)
        self._bytes -= sum(map(BYTES_EACH, messages))
        self._segments[seq] = keys
        self._spooled_keys = None
        return messages

    def _messages(self, keys: Iterable[Key]) -> list[Message]:
        """Return the messages of keys that are or were in the buffer.

        None of these keys belongs to an earlier process.
        """
        return cast("list[Message]", list(map(self._held.__getitem__, keys)))

    def _within(self, max_bytes: int) -> int:
        """Return how many of the first messages fit into `max_bytes`; at least 1."""
        if self._bytes <= max_bytes:
            return len(self._buffer)
        sizes = accumulate(map(BYTES_EACH, self._messages(self._buffer)))
        return max(sum(1 for _ in takewhile(lambda size: size <= max_bytes, sizes)), 1)

    def put_back(self, seq: int) -> None:
        """Remove a segment and put its messages back at the start of the buffer."""
        keys = self._segments.pop(seq)
        self._spooled_keys = None
        self._buffer[:0] = keys
        self._bytes += sum(map(BYTES_EACH, self._messages(keys)))

    def restore(self, seq: int, message_ids: Sequence[str]) -> None:
        """Add a segment of an earlier process, whose leases are not adopted yet."""
        self._segments[seq] = keys_of(message_ids)
        self._spooled_keys = None
        self._held.update(dict.fromkeys(self._segments[seq]))

    def adopted(self, seq: int, messages: dict[str, Message]) -> list[Message]:
        """Record the adopted leases of a restored segment.

        Args:
            seq: Number of the segment.
            messages: By message id: the message that holds the adopted lease.

        Returns:
            The outdated messages: they have been redelivered in the meantime.
        """
        outdated = []
        for message_id, message in messages.items():
            key = key_of(message_id)
            if self._held[key] is None:
                self._held[key] = message
            else:
                outdated.append(message)
        return outdated

    def keys(self, seq: int) -> Sequence[Key]:
        """Return the keys of a segment that is not committed."""
        return self._segments[seq]

    def committed(self, seq: int) -> list[Message]:
        """Remove a segment that the done index contains; return the messages to acknowledge."""
        keys = self._segments.pop(seq)
        self._spooled_keys = None
        return _there(map(self._held.pop, keys, repeat(None)))

    def leased(self) -> list[Message]:
        """Return the messages of the segments that are not committed."""
        return _there(map(self._held.__getitem__, chain.from_iterable(self._segments.values())))


def _without_first(keys: Iterable[Key], counts: Counter[Key]) -> Iterator[Key]:
    """Skip the first `counts[key]` entries of each key."""
    for key in keys:
        if counts[key]:
            counts[key] -= 1
        else:
            yield key


def _there(messages: Iterable[Message | None]) -> list[Message]:
    return [message for message in messages if message is not None]
