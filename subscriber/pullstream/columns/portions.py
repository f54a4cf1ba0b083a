"""Portions: consecutive messages of one response, without an object for each message."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import groupby
from typing import cast

from pullstream.lazy_messages import RawMessages
from pullstream.message import (
    Disposition,
    Message,
    MessageBatch,
    ResponseBatch,
    ack_ids_of,
    clear_begun,
    encoded_of,
)
from pullstream_protocol.call_lock import CallLock


class Portion:
    """Consecutive messages of one response that are leased, handled and acknowledged together.

    It has the state of its messages until one of them is treated differently from the others. Then
    `messages` creates them, and from then on they have the state. So everything that concerns a
    single message works with a Message, and only the common case has no object for each.

    The lock of the lease table guards `leased` and the division. The two steps that every portion
    takes need no lock: a lock that several threads want costs more than all other work.

    Args:
        batch: The response, whose messages are unparsed.
        start: The index of the first message.
        stop: The index after the last message.
        lock: The lock of the lease table. Any other lock if there is no lease table.

    Attributes:
        batch: The response.
        leased: Whether the lease table counts the messages. False once they are created.
        divided: The messages, once they are created.
        ordering_key: Always "". Messages with a key are never in a portion, because each of them
            may have to wait.
    """

    ordering_key = ""

    __slots__ = ("_begun", "_lock", "_outcome", "_start", "_stop", "batch", "divided", "leased")

    def __init__(self, batch: ResponseBatch, start: int, stop: int, lock: CallLock) -> None:
        self.batch: ResponseBatch = batch
        self._start = start
        self._stop = stop
        self._lock = lock
        # Empty until the messages are settled together or divided. The first of the two enters its
        # value under the key "", and `setdefault` tells every thread which one was first.
        self._outcome: dict[str, Disposition | None] = {}
        self._begun = False
        self.leased: bool = True
        self.divided: list[Message] | None = None

    def __len__(self) -> int:
        return self._stop - self._start

    @property
    def _messages(self) -> RawMessages:
        messages = self.batch.unparsed
        assert messages is not None
        return messages

    @property
    def encoded(self) -> Sequence[bytes]:
        """The serialized ReceivedMessages."""
        return self._messages.encoded[self._start : self._stop]

    @property
    def ack_ids(self) -> Sequence[str]:
        """The ack ids of the messages."""
        return self._messages.ack_ids[self._start : self._stop]

    @property
    def is_settled(self) -> bool:
        """Whether all messages are settled together."""
        return self._outcome.get("") is not None

    def begin(self) -> bool:
        """Record that a callback begins; return whether the messages are still undivided."""
        # `divide` does these steps in the opposite order: it sets `divided`, and then reads
        # `_begun`. So at least one of the two threads sees the other.
        self._begun = True
        return self.divided is None

    def clear_begun(self) -> None:
        """Record that a callback took the messages and did not try to handle them."""
        # The lock, because a division that has seen `_begun` passes it on to the messages.
        with self._lock.once:
            self._begun = False
            clear_begun(self.divided or ())

    def settle(self, disposition: Disposition) -> bool:
        """Settle all messages; return False if they are divided, or were settled before."""
        if self._outcome:
            return False
        return self._outcome.setdefault("", disposition) is disposition

    def messages(self) -> list[Message]:
        """Return the messages, which the first call creates. Any thread may call this."""
        if self.divided is not None:
            return self.divided
        with self._lock.once:
            return self.divide()

    def divide(self) -> list[Message]:
        """Return the messages, as `messages` does. The caller holds the lock."""
        if self.divided is None:
            messages = [Message(self.batch, at) for at in range(self._start, self._stop)]
            settled = self._outcome.setdefault("", None)
            for message in messages:
                message.settled = settled
                message.leased = self.leased
            self.leased = False
            self.divided = messages
            if self._begun:
                for message in messages:
                    message.begun = True
        return self.divided


Unit = Message | Portion

# Acknowledges whole portions, whose messages have these ack ids.
AckPortions = Callable[[Sequence[Portion], Sequence[str]], None]


def acknowledge(
    units: Sequence[Unit], ack_portions: AckPortions, ack_ids: Callable[[], Sequence[str]]
) -> None:
    """Acknowledge every message that is not settled.

    Args:
        units: The messages.
        ack_portions: Acknowledges portions.
        ack_ids: Returns the ack ids of the messages, if that is quicker than `ack_ids_in`.
    """
    whole: list[Portion] = []
    single = MessageBatch()
    for unit in units:
        if isinstance(unit, Message):
            single.append(unit)
        elif unit.settle(Disposition.ACK):
            whole.append(unit)
        elif not unit.is_settled:
            single += unit.messages()
    if whole:
        are_all = len(whole) == len(units)
        ack_portions(whole, ack_ids() if are_all else ack_ids_in(whole))
    single.ack()


def messages_of(units: Iterable[Unit]) -> list[Message]:
    """Return the messages of several units, in order."""
    messages: list[Message] = []
    for unit in units:
        if isinstance(unit, Portion):
            messages += unit.messages()
        else:
            messages.append(unit)
    return messages


def unsettled_in(units: Iterable[Unit]) -> list[Unit]:
    """Return the messages, and the portions of messages, that are not settled."""
    unsettled: list[Unit] = []
    for unit in units:
        if isinstance(unit, Message):
            if unit.settled is None:
                unsettled.append(unit)
        elif unit.divided is not None:
            unsettled += [message for message in unit.divided if message.settled is None]
        elif not unit.is_settled:
            unsettled.append(unit)
    return unsettled


def size_of(units: Sequence[Unit]) -> int:
    """Return the number of messages of several units."""
    size = 0
    for unit in units:
        size += len(unit) if isinstance(unit, Portion) else 1
    return size


def ack_ids_in(units: Iterable[Unit]) -> list[str]:
    """Return the ack ids of the messages of several units, in order."""
    ack_ids: list[str] = []
    for is_portion, neighbours in groupby(units, _is_portion):
        if is_portion:
            for portion in cast("Iterable[Portion]", neighbours):
                ack_ids += portion.ack_ids
        else:
            ack_ids += ack_ids_of(cast("Iterable[Message]", neighbours))
    return ack_ids


def encoded_in(units: Iterable[Unit]) -> list[bytes]:
    """Return the serialized ReceivedMessages of several units, in order."""
    encoded: list[bytes] = []
    for is_portion, neighbours in groupby(units, _is_portion):
        if is_portion:
            for portion in cast("Iterable[Portion]", neighbours):
                encoded += portion.encoded
        else:
            encoded += encoded_of(cast("Iterable[Message]", neighbours))
    return encoded


def whole_responses(units: Iterable[Unit]) -> list[bytes] | None:
    """Return the serialized responses whose messages these are; None if there are no such ones."""
    responses = []
    for unit in units:
        received = unit.batch.unparsed
        if received is None or not isinstance(unit, Portion) or len(unit) < len(received):
            return None
        responses.append(received.raw)
    return responses


def _is_portion(unit: Unit) -> bool:
    return isinstance(unit, Portion)
