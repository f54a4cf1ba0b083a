"""The rules of an ingestion's leases: which message is where, and what may be acknowledged."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, chain, repeat, takewhile
from typing import Protocol, cast

from subscriber.message import SHARE, Message

from .keys import Key, key_of, keys_of

# Of the buffer, places that may be empty before it is made anew.
_EMPTY_PLACES = 1000


class Done(Protocol):
    """The messages that are committed."""

    def __contains__(self, key: Key, /) -> bool: ...

    def isdisjoint(self, keys: Iterable[Key], /) -> bool: ...


@dataclass(slots=True)
class Arrival:
    """What became of newly received messages.

    fresh: how many were put into the buffer.
    buffered: those that are in the buffer now: the fresh ones, and redeliveries of others there.
    done: those that are committed already, and may be acknowledged at once.
    outdated: earlier deliveries of others, of which the server will hear no more.
    """

    fresh: int = 0
    buffered: list[Message] = field(default_factory=list)
    done: list[Message] = field(default_factory=list)
    outdated: list[Message] = field(default_factory=list)


class Ledger:
    """Every message that is received and not committed, by its id. Not thread-safe.

    A message is *buffered*, then in a *segment*, then *committed*, which only `committed` says; and
    only then is it handed out to be acknowledged. For each id there is one lease: that of the
    newest delivery.

    What happens to all messages happens to whole lists of ids, and looks up each id once: among
    hundreds of thousands, that is what it costs. What is seldom, a redelivery or a lost lease, may
    take longer.
    """

    def __init__(self, done: Done) -> None:
        self._done = done
        # Of every id the message with which its lease is held now; None for a lease of an earlier
        # process that is not adopted yet.
        self._held: dict[Key, Message | None] = {}
        # The ids of the buffer in the order of arrival. A redelivery takes the place of what it
        # repeats. The place of one that was lost is empty: of its id, so many of the first ones.
        self._buffer: list[Key] = []
        self._lost: Counter[Key] = Counter()
        # Of the buffer.
        self._bytes = 0
        self._segments: dict[int, list[Key]] = {}
        # The keys of all segments, while nothing has changed since somebody asked.
        self._spooled_keys: frozenset[Key] | None = None
        # Deliveries that made no new row: what they bring is here already, or is committed.
        self.suppressed: int = 0

    @property
    def buffered(self) -> int:
        return len(self._held) - self.spooled

    @property
    def spooled(self) -> int:
        """Messages in segments that are not committed."""
        return sum(map(len, self._segments.values()))

    def spooled_up_to(self, seq: int) -> int:
        """Messages in segments up to this one that wait for the done index."""
        return sum(len(ids) for number, ids in self._segments.items() if number <= seq)

    @property
    def segments(self) -> list[int]:
        """The numbers of the segments that are not committed, in order."""
        return sorted(self._segments)

    def arrived(self, messages: Sequence[Message], message_ids: Sequence[str]) -> Arrival:
        """Messages came in. Their ids were looked at before, and are not looked up again."""
        before, keys = len(self._held), keys_of(message_ids)
        if self._knows_none(keys):
            self._held.update(zip(keys, messages, strict=True))
            if len(self._held) == before + len(messages):
                self._buffer += keys
                self._bytes += sum(map(SHARE, messages))
                return Arrival(len(messages), list(messages))
            # One of them is there twice.
            for key in keys:
                self._held.pop(key, None)
        arrival = Arrival()
        for message in messages:
            self._sort(message, arrival)
        self.suppressed += len(messages) - arrival.fresh
        return arrival

    def _knows_none(self, keys: Sequence[Key]) -> bool:
        """Whether all are new, as they nearly always are."""
        return self._held.keys().isdisjoint(keys) and self._done.isdisjoint(keys)

    def _sort(self, message: Message, arrival: Arrival) -> None:
        key = key_of(message.message_id)
        if key in self._held:
            outdated, self._held[key] = self._held[key], message
            if outdated is not None:
                arrival.outdated.append(outdated)
                if not self._is_spooled(key):
                    self._bytes += message.batch.share - outdated.batch.share
                    arrival.buffered.append(message)
        elif key in self._done:
            arrival.done.append(message)
        else:
            self._held[key] = message
            self._buffer.append(key)
            self._bytes += message.batch.share
            arrival.fresh += 1
            arrival.buffered.append(message)

    def _is_spooled(self, key: Key) -> bool:
        """Whether what is held is in a segment; else it is in the buffer."""
        if self._spooled_keys is None:
            self._spooled_keys = frozenset(chain.from_iterable(self._segments.values()))
        return key in self._spooled_keys

    def has(self, messages: int, size: int) -> bool:
        """Whether the buffer has so many messages, or so many bytes."""
        return self.buffered >= messages or self._bytes >= size

    def lost(self, messages: Iterable[Message]) -> None:
        """The leases of messages are over: what is not in a segment yet will come again."""
        for message in messages:
            key = key_of(message.message_id)
            if self._held.get(key) is message and not self._is_spooled(key):
                del self._held[key]
                self._lost[key] += 1
                self._bytes -= message.batch.share
        if len(self._buffer) > 2 * self.buffered + _EMPTY_PLACES:
            self._close_up()

    def _close_up(self) -> None:
        """Let the buffer have no empty places."""
        if self._lost:
            lost, self._lost = self._lost, Counter()
            self._buffer = list(_without_first(self._buffer, lost))

    def cut(self, seq: int, max_messages: int, max_bytes: int) -> list[Message]:
        """Move the first of the buffer into the segment `seq`, up to these limits; at least one.

        They are in the segment as soon as they are no longer in the buffer: a redelivery finds them
        while the file is still being written. Of an empty buffer there is no segment.
        """
        self._close_up()
        count = min(self._within(max_bytes), max_messages, len(self._buffer))
        if count == 0:
            return []
        keys = self._buffer[:count]
        del self._buffer[:count]
        messages = self._messages(keys)
        self._bytes -= sum(map(SHARE, messages))
        self._segments[seq] = keys
        self._spooled_keys = None
        return messages

    def _messages(self, keys: Iterable[Key]) -> list[Message]:
        """The messages of keys that are in the buffer, or were: none of those is an earlier
        process's."""
        return cast("list[Message]", list(map(self._held.__getitem__, keys)))

    def _within(self, max_bytes: int) -> int:
        """How many of the first of the buffer have no more bytes than that; one in any case."""
        if self._bytes <= max_bytes:
            return len(self._buffer)
        sizes = accumulate(map(SHARE, self._messages(self._buffer)))
        return max(sum(1 for _ in takewhile(lambda size: size <= max_bytes, sizes)), 1)

    def put_back(self, seq: int) -> None:
        """What was cut is no segment: its messages are the first of the buffer again."""
        keys = self._segments.pop(seq)
        self._spooled_keys = None
        self._buffer[:0] = keys
        self._bytes += sum(map(SHARE, self._messages(keys)))

    def restore(self, seq: int, message_ids: Sequence[str]) -> None:
        """A segment of an earlier process is there, whose leases are not adopted yet."""
        self._segments[seq] = keys_of(message_ids)
        self._spooled_keys = None
        self._held.update(dict.fromkeys(self._segments[seq]))

    def adopted(self, seq: int, messages: dict[str, Message]) -> list[Message]:
        """The leases of a restored segment were taken on; returns those that are outdated, because
        their message has been delivered again meanwhile."""
        outdated = []
        for message_id, message in messages.items():
            key = key_of(message_id)
            if self._held[key] is None:
                self._held[key] = message
            else:
                outdated.append(message)
        return outdated

    def keys(self, seq: int) -> Sequence[Key]:
        """The messages of a segment that is not committed."""
        return self._segments[seq]

    def committed(self, seq: int) -> list[Message]:
        """A segment is committed, and the done index has it; returns what may be acknowledged."""
        keys = self._segments.pop(seq)
        self._spooled_keys = None
        return _there(map(self._held.pop, keys, repeat(None)))

    def leased(self) -> list[Message]:
        """The messages of the segments that are not committed."""
        return _there(map(self._held.__getitem__, chain.from_iterable(self._segments.values())))


def _without_first(keys: Iterable[Key], counts: Counter[Key]) -> Iterator[Key]:
    """Without so many of the first of each."""
    for key in keys:
        if counts[key]:
            counts[key] -= 1
        else:
            yield key


def _there(messages: Iterable[Message | None]) -> list[Message]:
    return [message for message in messages if message is not None]
