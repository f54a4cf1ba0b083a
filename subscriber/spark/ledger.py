"""The rules of an ingestion's leases: which message is where, and what may be acknowledged."""

from __future__ import annotations

from collections.abc import Iterable, KeysView, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, islice, takewhile
from typing import Protocol

from subscriber.message import Message

# The message with which a lease is held now; None for one of an earlier process, not adopted yet.
Held = dict[str, "Message | None"]


class Done(Protocol):
    """The ids of messages that are committed."""

    def __contains__(self, message_id: str, /) -> bool: ...

    def isdisjoint(self, message_ids: Iterable[str], /) -> bool: ...


@dataclass(slots=True)
class Arrival:
    """What became of newly received messages.

    fresh: how many were put into the buffer.
    done: those that are committed already, and may be acknowledged at once.
    outdated: earlier deliveries of others, of which the server will hear no more.
    """

    fresh: int = 0
    done: list[Message] = field(default_factory=list)
    outdated: list[Message] = field(default_factory=list)


class Ledger:
    """Every message that is received and not committed, by its id. Not thread-safe.

    A message is *buffered*, then in a *segment*, then *committed*, which only `committed` says; and
    only then is it handed out to be acknowledged. For each id there is one lease: that of the
    newest delivery.
    """

    def __init__(self, done: Done) -> None:
        self._done = done
        # In the order of arrival. A redelivery takes the place of what it repeats.
        self._buffer: dict[str, Message] = {}
        # Of the buffer, counted as flow control does.
        self._bytes = 0
        self._segments: dict[int, Held] = {}
        self.suppressed: int = 0

    @property
    def buffered(self) -> int:
        return len(self._buffer)

    @property
    def spooled(self) -> int:
        """Messages in segments that are not committed."""
        return sum(map(len, self._segments.values()))

    def spooled_up_to(self, seq: int) -> int:
        """Messages in segments up to this one that wait for the done index."""
        return sum(len(held) for number, held in self._segments.items() if number <= seq)

    @property
    def segments(self) -> list[int]:
        """The numbers of the segments that are not committed, in order."""
        return sorted(self._segments)

    def arrived(self, messages: Sequence[Message], message_ids: Sequence[str]) -> Arrival:
        """Messages came in. Their ids were looked at before, and are not looked up again."""
        arrivals = dict(zip(message_ids, messages, strict=True))
        if len(arrivals) == len(messages) and self._knows_none(arrivals.keys()):
            self._add(arrivals)
            return Arrival(fresh=len(arrivals))
        arrival = Arrival()
        for message in messages:
            self._sort(message, arrival)
        self.suppressed += len(arrival.done)
        return arrival

    def _knows_none(self, message_ids: KeysView[str]) -> bool:
        """Whether all are new, as they nearly always are: a look at each set as a whole."""
        return (
            self._buffer.keys().isdisjoint(message_ids)
            and all(held.keys().isdisjoint(message_ids) for held in self._segments.values())
            and self._done.isdisjoint(message_ids)
        )

    def _add(self, arrivals: Mapping[str, Message]) -> None:
        self._buffer.update(arrivals)
        self._bytes += sum(message.batch.share for message in arrivals.values())

    def _sort(self, message: Message, arrival: Arrival) -> None:
        message_id = message.message_id
        earlier = self._buffer.get(message_id)
        if earlier is not None:
            arrival.outdated.append(earlier)
            self._bytes -= earlier.batch.share
            self._add({message_id: message})
            return
        for held in self._segments.values():
            if message_id in held:
                outdated = held[message_id]
                if outdated is not None:
                    arrival.outdated.append(outdated)
                held[message_id] = message
                return
        if message_id in self._done:
            arrival.done.append(message)
        else:
            self._add({message_id: message})
            arrival.fresh += 1

    def has(self, messages: int, size: int) -> bool:
        """Whether the buffer has so many messages, or so many bytes."""
        return len(self._buffer) >= messages or self._bytes >= size

    def lost(self, messages: Iterable[Message]) -> None:
        """The leases of messages are over: what is not in a segment yet will come again."""
        for message in messages:
            if self._buffer.get(message.message_id) is message:
                del self._buffer[message.message_id]
                self._bytes -= message.batch.share

    def cut(self, seq: int, max_messages: int, max_bytes: int) -> list[Message]:
        """Move the first of the buffer into the segment `seq`, up to these limits; at least one.

        They are in the segment as soon as they are no longer in the buffer: a redelivery finds them
        while the file is still being written. Of an empty buffer there is no segment.
        """
        count = min(self._within(max_bytes), max_messages, len(self._buffer))
        if count == 0:
            return []
        if count == len(self._buffer):
            taken, self._buffer = self._buffer, {}
        else:
            taken = dict(islice(self._buffer.items(), count))
            for message_id in taken:
                del self._buffer[message_id]
        messages = list(taken.values())
        self._bytes -= sum(message.batch.share for message in messages)
        self._segments[seq] = {**taken}
        return messages

    def _within(self, max_bytes: int) -> int:
        """How many of the first of the buffer have no more bytes than that; one in any case."""
        if self._bytes <= max_bytes:
            return len(self._buffer)
        sizes = accumulate(message.batch.share for message in self._buffer.values())
        return max(sum(1 for _ in takewhile(lambda size: size <= max_bytes, sizes)), 1)

    def put_back(self, seq: int) -> None:
        """The segment could not be written: its messages are the first of the buffer again."""
        held = self._segments.pop(seq)
        back = {message_id: message for message_id, message in held.items() if message is not None}
        self._bytes += sum(message.batch.share for message in back.values())
        self._buffer = {**back, **self._buffer}

    def restore(self, seq: int, message_ids: Iterable[str]) -> None:
        """A segment of an earlier process is there, whose leases are not adopted yet."""
        self._segments[seq] = dict.fromkeys(message_ids)

    def adopted(self, seq: int, messages: dict[str, Message]) -> list[Message]:
        """The leases of a restored segment were taken on; returns those that are outdated, because
        their message has been delivered again meanwhile."""
        held = self._segments[seq]
        outdated = []
        for message_id, message in messages.items():
            if held[message_id] is None:
                held[message_id] = message
            else:
                outdated.append(message)
        return outdated

    def ids(self, seq: int) -> list[str]:
        """The message ids of a segment that is not committed."""
        return list(self._segments[seq])

    def committed(self, seq: int) -> list[Message]:
        """A segment is committed, and the done index has it; returns what may be acknowledged."""
        return _held(self._segments.pop(seq))

    def leased(self) -> list[Message]:
        """The messages of the segments that are not committed."""
        return [message for held in self._segments.values() for message in _held(held)]


def _held(messages: Held) -> list[Message]:
    return [message for message in messages.values() if message is not None]
