"""Rules for the leases of an ingestion: the state of each message, and when to acknowledge."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from itertools import accumulate, chain, repeat, takewhile
from typing import Protocol, cast

from pullstream.message import BYTES_EACH, Message
from pullstream.spark.spool.message_keys import Key, key_of, keys_of

from .message_group import MessageGroup


class Done(Protocol):
    """The committed messages."""

    def __contains__(self, key: Key, /) -> bool: ...

    def isdisjoint(self, keys: Iterable[Key], /) -> bool:
        """Return whether none of the keys is committed."""


@dataclass(slots=True)
class Arrival:
    """Classification of newly received messages.

    Attributes:
        fresh: Number of messages that were added to the buffer.
        done: Messages that are already committed and may be acknowledged at once.
        outdated: Earlier deliveries that a redelivery replaces. No request for them is sent any
            more.
    """

    fresh: int = 0
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
        # The buffer in the order of arrival. A redelivery takes the position of the earlier
        # delivery.
        self._buffer: deque[MessageGroup] = deque()
        # Size of the buffered messages.
        self._bytes = 0
        self._segments: dict[int, list[Key]] = {}
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

    @property
    def oldest_buffered(self) -> float | None:
        """The earliest publish time of the buffered messages, in seconds since the epoch."""
        times = (group.oldest_publish_time for group in self._buffer)
        return min((time for time in times if time is not None), default=None)

    def arrived(self, group: MessageGroup) -> Arrival:
        """Add received messages, in the order of arrival. The ledger owns the group from now on."""
        before, count = len(self._held), len(group)
        if self._knows_none(group.keys):
            self._held.update(zip(group.keys, group.messages, strict=True))
            if len(self._held) == before + count:
                self._append(group)
                return Arrival(count)
            # A message is there twice; add them one by one.
            for key in group.keys:
                self._held.pop(key, None)
        arrival = Arrival()
        fresh: list[int] = []
        redelivered: dict[Key, Message] = {}
        for place, (key, message) in enumerate(zip(group.keys, group.messages, strict=True)):
            if key in self._held:
                outdated, self._held[key] = self._held[key], message
                redelivered[key] = message
                if outdated is not None:
                    arrival.outdated.append(outdated)
            elif key in self._done:
                arrival.done.append(message)
            else:
                self._held[key] = message
                fresh.append(place)
        if fresh:
            group.keep_only(fresh)
            self._append(group)
        self._replace(redelivered)
        arrival.fresh = len(fresh)
        self.suppressed += count - len(fresh)
        return arrival

    def _knows_none(self, keys: Sequence[Key]) -> bool:
        """Return whether all keys are new, as they nearly always are."""
        return self._held.keys().isdisjoint(keys) and self._done.isdisjoint(keys)

    def _append(self, group: MessageGroup) -> None:
        self._buffer.append(group)
        self._bytes += _size(group.messages)

    def _replace(self, newer: Mapping[Key, Message]) -> None:
        """Replace the buffered deliveries of these messages; messages in segments have no row."""
        for group in self._groups_with(newer.keys()):
            self._bytes -= _size(group.messages)
            group.messages = [
                newer.get(key, message)
                for key, message in zip(group.keys, group.messages, strict=True)
            ]
            group.rows = None
            self._bytes += _size(group.messages)

    def _groups_with(self, keys: Set[Key]) -> list[MessageGroup]:
        """Return the groups in the buffer with at least one of these keys."""
        return [group for group in self._buffer if not keys.isdisjoint(group.keys)] if keys else []

    def has(self, messages: int, size: int) -> bool:
        """Return whether the buffer has this many messages or bytes."""
        return self.buffered >= messages or self._bytes >= size

    def lost(self, messages: Iterable[Message]) -> None:
        """Remove messages whose leases are lost from the buffer. They will be redelivered.

        Messages in segments stay.
        """
        lost = {
            key
            for message in messages
            if self._held.get(key := key_of(message.message_id)) is message
        }
        for group in self._groups_with(lost):
            self._bytes -= _size(group.messages)
            for key in lost.intersection(group.keys):
                del self._held[key]
            group.keep_only([at for at, key in enumerate(group.keys) if key not in lost])
            self._bytes += _size(group.messages)
            if not group:
                self._buffer.remove(group)

    def cut(self, seq: int, max_messages: int, max_bytes: int) -> list[MessageGroup]:
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
        left = min(self._within(max_bytes), max_messages)
        groups: list[MessageGroup] = []
        while left and self._buffer:
            first = self._buffer[0]
            group = self._buffer.popleft() if len(first) <= left else first.take_first(left)
            left -= len(group)
            self._bytes -= _size(group.messages)
            groups.append(group)
        if groups:
            self._segments[seq] = [key for group in groups for key in group.keys]
        return groups

    def _within(self, max_bytes: int) -> int:
        """Return how many of the first messages fit into `max_bytes`; at least 1."""
        if self._bytes <= max_bytes:
            return self.buffered
        messages = chain.from_iterable(group.messages for group in self._buffer)
        sizes = accumulate(map(BYTES_EACH, messages))
        return max(sum(1 for _ in takewhile(lambda size: size <= max_bytes, sizes)), 1)

    def put_back(self, seq: int) -> None:
        """Remove a segment and put its messages back at the start of the buffer."""
        keys = self._segments.pop(seq)
        # None of these keys belongs to an earlier process, so each has a message.
        messages = cast("list[Message]", [self._held[key] for key in keys])
        self._buffer.appendleft(MessageGroup(keys, messages, None))
        self._bytes += _size(messages)

    def restore(self, seq: int, message_ids: Sequence[str]) -> None:
        """Add a segment of an earlier process, whose leases are not adopted yet."""
        self._segments[seq] = keys_of(message_ids)
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
        return _there(map(self._held.pop, keys, repeat(None)))

    def leased(self) -> list[Message]:
        """Return the messages of the segments that are not committed."""
        return _there(map(self._held.__getitem__, chain.from_iterable(self._segments.values())))


def _size(messages: Iterable[Message]) -> int:
    """Return the size of messages in bytes."""
    return sum(map(BYTES_EACH, messages))


def _there(messages: Iterable[Message | None]) -> list[Message]:
    return [message for message in messages if message is not None]
