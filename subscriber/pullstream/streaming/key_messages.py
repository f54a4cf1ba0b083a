"""The held and the missing messages of a failed key."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from pullstream.message import Message

from .sorted_keys import SortedKeys

# A delivery may wait this many seconds for the reader's thread without any sign, if the machine is
# busy. The answer to a nack has its own connection and may overtake it.
READER_DELAY = 1.0

Position = tuple[int, int, int, str]


def position_of(message: Message) -> Position:
    """Return the position of a message in its key, which is the same for each of its deliveries.

    It is the order of publishing. The ids of messages that were published together are increasing
    numbers. The order of receipt cannot be used: after a reconnect there may be deliveries of one
    message before and after another message.
    """
    seconds, nanos = message.published
    message_id = message.message_id
    return seconds, nanos, len(message_id), message_id


class HeldMessages:
    """The held messages of a key, one delivery of each, in order. Not thread-safe.

    Attributes:
        bytes: Bytes of the messages.
        old: Number of *old* deliveries. They were held at the last call of `mark_old`.
    """

    def __init__(self) -> None:
        self.bytes = 0
        self.old = 0
        # The delivery of each message, and how many deliveries had been held before it.
        self._by_id: dict[str, tuple[Message, int]] = {}
        self._positions: SortedKeys[Position] = SortedKeys()
        self._deliveries = 0
        # Deliveries with a smaller number are old.
        self._old_below = 0

    def __len__(self) -> int:
        return len(self._by_id)

    @property
    def first(self) -> Position | None:
        """The position of the earliest message; None if no message is held."""
        return self._positions.first

    @property
    def last(self) -> Position | None:
        """The position of the latest message; None if no message is held."""
        return self._positions.last

    def get(self, message_id: str) -> Message | None:
        """Return the held delivery of a message; None if there is none."""
        held = self._by_id.get(message_id)
        return None if held is None else held[0]

    def head(self, count: int) -> list[Message]:
        """Return the first `count` messages."""
        return self._at(self._positions.head(count))

    def between(self, low: Position, high: Position | None) -> list[Message]:
        """Return the messages behind one position and before another; None: no bound."""
        return self._at(self._positions.between(low, high))

    def put(self, message: Message, position: Position) -> Message | None:
        """Hold a delivery, and return the delivery of the same message that it replaces."""
        older = self.get(message.message_id)
        if older is not None:
            self.remove(older)
        self._by_id[message.message_id] = message, self._deliveries
        self._deliveries += 1
        self._positions.add(position)
        self.bytes += message.batch.bytes_each
        return older

    def remove(self, message: Message) -> bool:
        """Stop holding a message, and return whether its delivery is old."""
        is_old = self._by_id.pop(message.message_id)[1] < self._old_below
        self.old -= is_old
        self._positions.discard(position_of(message))
        self.bytes -= message.batch.bytes_each
        return is_old

    def mark_old(self) -> None:
        """Make all held deliveries old."""
        self._old_below, self.old = self._deliveries, len(self)

    def mark_new(self) -> None:
        """Make all held deliveries new."""
        self._old_below = self.old = 0

    def _at(self, positions: Iterable[Position]) -> list[Message]:
        return [self._by_id[position[-1]][0] for position in positions]


@dataclass(slots=True)
class _Missing:
    """A message that was not handled and is not held here.

    Attributes:
        position: The position of the message in its key.
        ack_id: Ack id of its last delivery to this client.
        received_at: When that delivery was read.
        comes_at: Earliest time of its redelivery; infinite until the server has accepted the nack.
    """

    position: Position
    ack_id: str
    received_at: float
    comes_at: float = math.inf


class MissingMessages:
    """The missing messages of a key, and the times of their redeliveries. Not thread-safe.

    Each method takes nearly constant time, because a key may miss thousands of messages, and a
    server redelivers them one by one.

    Args:
        key: The ordering key.
        nacks: The keys of nacks that the server has not accepted yet, by ack id, of all keys. This
            class adds and removes the nacks of its messages.
    """

    def __init__(self, key: str, nacks: dict[str, str]) -> None:
        self._key = key
        self._nacks = nacks
        self._by_id: dict[str, _Missing] = {}
        self._unanswered: dict[str, _Missing] = {}
        self._positions: SortedKeys[Position] = SortedKeys()
        # Positions of messages that the server could not have redelivered yet at the last check.
        self._to_come: SortedKeys[Position] = SortedKeys()
        # The times of redeliveries after an accepted nack.
        self._times: SortedKeys[tuple[float, Position]] = SortedKeys()

    def __len__(self) -> int:
        return len(self._by_id)

    def __contains__(self, message_id: str) -> bool:
        return message_id in self._by_id

    @property
    def first(self) -> Position | None:
        """The position of the earliest missing message; None if no message is missing."""
        return self._positions.first

    @property
    def latest(self) -> float:
        """Earliest time by which the server may have redelivered all missing messages."""
        if self._unanswered:
            return math.inf
        last = self._times.last
        return -math.inf if last is None else last[0]

    @property
    def are_answered(self) -> bool:
        """Whether the server has accepted all nacks and returns."""
        return not self._unanswered

    def add(self, message: Message, position: Position) -> None:
        """Add a message whose nack or return is about to be sent."""
        self.pop(message.message_id)
        missing = _Missing(position, message.ack_id, message.batch.received_at)
        self._by_id[message.message_id] = missing
        self._unanswered[missing.ack_id] = missing
        self._nacks[missing.ack_id] = self._key
        self._positions.add(position)
        self._to_come.add(position)

    def pop(self, message_id: str) -> _Missing | None:
        """Remove a message and return it; None if it is not missing."""
        missing = self._by_id.pop(message_id, None)
        if missing is None:
            return None
        if missing.comes_at == math.inf:
            self._forget_nack(missing.ack_id)
        else:
            self._times.discard((missing.comes_at, missing.position))
        self._positions.discard(missing.position)
        self._to_come.discard(missing.position)
        return missing

    def pop_before(self, position: Position) -> None:
        """Remove the messages before a position."""
        for earlier in self._positions.between(None, position):
            self.pop(earlier[-1])

    def nack_was_accepted(self, ack_id: str, comes_at: float) -> None:
        """Record that the server accepted a nack, and redelivers from `comes_at` on."""
        missing = self._unanswered.get(ack_id)
        if missing is not None:
            self._forget_nack(ack_id)
            missing.comes_at = comes_at
            self._times.add((comes_at, missing.position))

    def forget_nacks(self) -> None:
        """Stop waiting for the answers of the server."""
        for ack_id in list(self._unanswered):
            self._forget_nack(ack_id)

    def received_at(self, message_id: str) -> float | None:
        """When the last delivery of a message was read; None if it is not missing."""
        missing = self._by_id.get(message_id)
        return None if missing is None else missing.received_at

    def are_due_before(self, position: Position, time: float) -> bool:
        """Return whether a delivery was sent after the server could redeliver all earlier messages.

        Args:
            position: The position of the delivery.
            time: When it was read. Not earlier than in the last call.
        """
        sent_after = time - READER_DELAY
        while (first := self._to_come.first) is not None and first < position:
            if sent_after < self._by_id[first[-1]].comes_at:
                return False
            # This one stays due.
            self._to_come.discard(first)
        return True

    def _forget_nack(self, ack_id: str) -> None:
        self._unanswered.pop(ack_id, None)
        self._nacks.pop(ack_id, None)
