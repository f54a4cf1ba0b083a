"""Rows that are made before they are asked for."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from itertools import takewhile
from typing import NamedTuple

import pyarrow as pa

from subscriber.message import Message, encoded_of

from .columns import Columns
from .rows import to_batch
from .segment import ACK_ID


class Made(NamedTuple):
    """Messages, their ids, and a row of each."""

    messages: list[Message]
    message_ids: list[str]
    rows: pa.RecordBatch


class PreparedRows:
    """The rows of messages that arrived, as segments have them, until they are wanted.

    To make a row takes longer than all else that happens to a message. Done when a batch is asked
    for, the engine would wait for it; done when the messages arrive, it is while the engine works
    on the batch before.

    The subscription's worker makes and keeps, another thread takes, whichever sees that messages
    are lost drops them. Which are wanted is not decided here: rows are used if they are of the very
    messages that are asked for, and made anew if not. So it does no harm when a message was lost or
    has been delivered again since. But rows that nobody asks for are memory that flow control does
    not see: `keep` is not to be told of such.

    Args:
        subscription: for the column of this name; None: there is none.
    """

    def __init__(self, subscription: str | None) -> None:
        self._subscription = subscription
        self._lock = threading.Lock()
        self._parts: deque[tuple[list[Message], pa.RecordBatch]] = deque()

    def __len__(self) -> int:
        """Rows that are kept."""
        with self._lock:
            return sum(len(held) for held, _ in self._parts)

    def make(self, messages: Sequence[Message]) -> Made:
        """The rows of messages that arrived."""
        columns = Columns(encoded_of(messages))
        return Made(list(messages), columns.message_ids, self._rows(columns))

    def keep(self, made: Made, wanted: Sequence[Message]) -> None:
        """Keep those of some of the messages, which stand in the same order."""
        part = (made.messages, made.rows)
        if len(wanted) < len(made.messages):
            part = _picked(part, {id(message) for message in wanted})
        with self._lock:
            self._parts.append(part)

    def drop(self, messages: Iterable[Message]) -> None:
        """Keep those of these messages no longer, if they are here."""
        gone = {id(message) for message in messages}
        with self._lock:
            for _ in range(len(self._parts)):
                part = self._parts.popleft()
                if not gone.isdisjoint(map(id, part[0])):
                    part = _picked(part, set(map(id, part[0])) - gone)
                if part[0]:
                    self._parts.append(part)

    def take(self, messages: list[Message]) -> pa.RecordBatch:
        """The rows of `messages`, which arrived in this order, and of no others."""
        with self._lock:
            taken = list(self._taken(messages))
        return pa.concat_batches(
            self._rows(Columns(encoded_of(found))) if isinstance(found, list) else found
            for found in taken
        )

    def _taken(self, messages: list[Message]) -> Iterator[pa.RecordBatch | list[Message]]:
        """Rows, and messages of which there are none."""
        position = 0
        while position < len(messages):
            # By identity, as messages are compared.
            if not self._parts or self._parts[0][0][0] is not messages[position]:
                # Something was lost or delivered again, or is taken a second time.
                before = self._drop_unwanted(messages, position)
                if before > position:
                    yield messages[position:before]
                    position = before
                    continue
            held, rows = self._parts.popleft()
            count = _same(held, messages, position)
            yield rows.slice(0, count)
            position += count
            if count < len(held):
                self._parts.appendleft((held[count:], rows.slice(count)))

    def _drop_unwanted(self, messages: list[Message], position: int) -> int:
        """Let the first rows be of a message that is wanted, from `position` on; returns which.

        Rows before it are dropped. If there are no such rows it is the number of messages.
        """
        wanted = {id(message): place for place, message in enumerate(messages[position:], position)}
        while self._parts:
            held, rows = self._parts.popleft()
            for first, message in enumerate(held):
                if id(message) in wanted:
                    self._parts.appendleft((held[first:], rows.slice(first)))
                    return wanted[id(message)]
        return len(messages)

    def _rows(self, columns: Columns) -> pa.RecordBatch:
        ack_ids = pa.array(columns.ack_ids, pa.string())
        return to_batch(columns, self._subscription).append_column(ACK_ID, ack_ids)


def _picked(
    part: tuple[list[Message], pa.RecordBatch], ids: set[int]
) -> tuple[list[Message], pa.RecordBatch]:
    """Some of the messages of a part, and a copy of their rows: a slice would keep the others'."""
    held, rows = part
    places = [place for place, message in enumerate(held) if id(message) in ids]
    return [held[place] for place in places], rows.take(pa.array(places, pa.int64()))


def _same(held: list[Message], messages: list[Message], start: int) -> int:
    """How many of the first of `held` stand in `messages` from `start` on."""
    if held == messages[start : start + len(held)]:
        return len(held)
    pairs = zip(held, messages[start:], strict=False)
    return sum(1 for _ in takewhile(lambda pair: pair[0] is pair[1], pairs))
