"""The messages of one receiver from their arrival until they are settled."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from typing import NamedTuple

from pullstream.columns.portions import size_of
from pullstream.message import Message
from pullstream.spark.protocol.layout import Segment
from pullstream.spark.protocol.message_keys import Key, key_of

from .message_group import MessageGroup


class Arrival(NamedTuple):
    """Classification of newly received messages.

    Attributes:
        fresh: Number of messages that were added to the buffer.
        outdated: Earlier deliveries that a redelivery replaces. No request for them is sent any
            more.
    """

    fresh: int
    outdated: Sequence[Message] = ()


class WaitingMessages:
    """Every message that is received and not settled, by id. Not thread-safe.

    A message is *buffered*, then *cut* while its segment is written, then *held* until its batch is
    committed. Each id has one lease: the lease of the newest delivery.

    Frequent operations work on whole lists of ids and look up each id once, because among hundreds
    of thousands of ids the lookups are the main cost. Rare operations, such as a redelivery or a
    lost lease, may take longer.
    """

    def __init__(self) -> None:
        # By id: the group that has the newest delivery.
        self._groups: dict[Key, MessageGroup] = {}
        # In the order of arrival. A redelivery takes the position of the earlier delivery.
        self._buffer: deque[MessageGroup] = deque()
        self._cut: list[MessageGroup] = []
        # Without rows, which segments have.
        self._held: dict[Segment, list[MessageGroup]] = {}

    @property
    def buffered(self) -> int:
        """Number of messages that are in no segment."""
        return len(self._groups) - self.held

    @property
    def size(self) -> int:
        """Size of the buffered messages in bytes."""
        return sum(group.size for group in self._buffer)

    @property
    def held(self) -> int:
        """Number of messages that are cut, or held until their batch is committed."""
        return sum(map(len, chain(self._cut, *self._held.values())))

    @property
    def segments(self) -> list[Segment]:
        """The segments whose messages are held."""
        return list(self._held)

    @property
    def oldest(self) -> float | None:
        """The earliest publish time of all messages, in seconds since the epoch."""
        groups = chain(self._buffer, self._cut, *self._held.values())
        times = (group.oldest_publish_time for group in groups)
        return min((time for time in times if time is not None), default=None)

    def arrived(self, group: MessageGroup) -> Arrival:
        """Add received messages, in the order of arrival. The group is owned here from now on."""
        before, count = len(self._groups), len(group)
        if self._groups.keys().isdisjoint(group.keys):
            self._enter(group)
            if len(self._groups) == before + count:
                self._buffer.append(group)
                return Arrival(count)
            # A message is there twice; add them one by one.
            for key in group.keys:
                self._groups.pop(key, None)
        outdated: list[Message] = []
        fresh: list[int] = []
        redelivered: dict[Key, Message] = {}
        for place, (key, message) in enumerate(zip(group.keys, group.messages, strict=True)):
            if key not in self._groups:
                fresh.append(place)
                self._groups[key] = group
            else:
                if key in redelivered:
                    outdated.append(redelivered[key])
                redelivered[key] = message
        if fresh:
            group.keep_only(fresh)
            self._buffer.append(group)
        return Arrival(len(fresh), [*self._replace(redelivered), *outdated])

    def _enter(self, group: MessageGroup) -> None:
        self._groups.update(dict.fromkeys(group.keys, group))

    def _replace(self, newer: Mapping[Key, Message]) -> list[Message]:
        """Replace deliveries by newer ones, and return the earlier ones."""
        outdated: list[Message] = []
        buffered = set(self._buffer)
        for group in dict.fromkeys(self._groups[key] for key in newer):
            outdated += group.replace(newer)
            if group in buffered:
                # Another thread may use the rows of a cut group.
                group.rows = None
        return outdated

    def has(self, messages: int, size: int) -> bool:
        """Return whether the buffer has this many messages or bytes."""
        return self.buffered >= messages or self.size >= size

    def lost(self, messages: Iterable[Message]) -> None:
        """Remove messages whose leases are lost from the buffer. They will be redelivered.

        Messages in segments stay.
        """
        lost = set(messages)
        having = {self._groups.get(key_of(message.message_id)) for message in lost}
        for group in [group for group in self._buffer if group in having]:
            of_group = group.messages
            for key, message in zip(group.keys, of_group, strict=True):
                if message in lost:
                    del self._groups[key]
            group.keep_only([at for at, one in enumerate(of_group) if one not in lost])
            if not group:
                self._buffer.remove(group)

    def leased(self, now: float, lease: float) -> None:
        """Record that the leases were extended.

        Args:
            now: The present time.
            lease: Length of a lease, in seconds. Leases that were not known to be held for this
                time are over, and are not extended.
        """
        for group in self._buffer:
            if now - group.leased_at <= lease:
                group.leased_at = now

    def cut(self, max_messages: int, max_bytes: int) -> list[MessageGroup]:
        """Move the first messages out of the buffer. Then call `put_back` or `hold`.

        Args:
            max_messages: Maximum number of messages.
            max_bytes: Maximum size in bytes; a single larger message still passes.

        Returns:
            The messages. May be empty.
        """
        left = min(self._within(max_bytes), max_messages)
        while left and self._buffer:
            first = self._buffer[0]
            if len(first) <= left:
                group = self._buffer.popleft()
            else:
                group = first.take_first(left)
                self._enter(group)
            left -= len(group)
            self._cut.append(group)
        return self._cut

    def _within(self, max_bytes: int) -> int:
        """Return how many of the first messages fit into `max_bytes`; at least 1."""
        fitting, left = 0, max_bytes
        for unit in chain.from_iterable(group.units for group in self._buffer):
            count, each = size_of((unit,)), unit.batch.bytes_each
            if count * each > left:
                fitting += left // each
                break
            fitting += count
            left -= count * each
        return max(fitting, 1)

    def put_back(self) -> None:
        """Put the cut messages back at the start of the buffer, with their newest leases."""
        cut, self._cut = self._cut, []
        for group in reversed(cut):
            # Some may be delivered again.
            group.rows = None
            self._buffer.appendleft(group)

    def hold(self, segment: Segment) -> None:
        """Hold the cut messages under the name of a segment, until they are settled."""
        self._held[segment], self._cut = self._cut, []
        for group in self._held[segment]:
            group.drop_rows()

    def take_held(self, segment: Segment) -> list[MessageGroup]:
        """Remove the messages of a segment, and return them."""
        groups = self._held.pop(segment, [])
        for group in groups:
            for key in group.keys:
                del self._groups[key]
        return groups

    def all_held(self) -> list[Message]:
        """Return the messages of the segments that are not committed."""
        groups = chain.from_iterable(self._held.values())
        return [message for group in groups for message in group.messages]
