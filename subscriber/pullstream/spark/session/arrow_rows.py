"""Arrow rows, made when messages arrive."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from itertools import takewhile
from typing import NamedTuple

import pyarrow as pa

from pullstream.message import Message, encoded_of
from pullstream.spark.rows.columns import Columns
from pullstream.spark.rows.rows import to_batch
from pullstream.spark.spool.segment import ACK_ID


class PreparedBatch(NamedTuple):
    """Messages, their ids, and a row for each."""

    messages: list[Message]
    message_ids: list[str]
    rows: pa.RecordBatch


class ArrowRows:
    """Rows of received messages in the form of segments, kept until a segment needs them.

    Making a row takes longer than everything else that happens to a message. If rows were made when
    a batch is requested, the engine would wait for it. When messages arrive, the engine is still
    processing the batch before.

    The subscription's worker makes and keeps rows, another thread takes them, and any thread that
    sees lost messages drops theirs. This class does not decide which rows are needed: `take` uses
    rows of exactly the requested message objects, and makes the missing ones. So a message may be
    lost or redelivered at any time. But rows that nobody takes use memory that flow control does
    not count, so `keep` must not get them.

    Args:
        subscription: Value of the column `subscription`. None: there is no such column.
    """

    def __init__(self, subscription: str | None) -> None:
        self._subscription = subscription
        self._lock = threading.Lock()
        self._parts: deque[tuple[list[Message], pa.RecordBatch]] = deque()

    def __len__(self) -> int:
        """Return the number of rows that are kept."""
        with self._lock:
            return sum(len(held) for held, _ in self._parts)

    def make(self, messages: Sequence[Message]) -> PreparedBatch:
        """Make the rows of received messages."""
        columns = Columns(encoded_of(messages))
        return PreparedBatch(list(messages), columns.message_ids, self._rows(columns))

    def keep(self, made: PreparedBatch, wanted: Sequence[Message]) -> None:
        """Keep the rows of the messages `wanted`, a part of `made` in the same order."""
        part = (made.messages, made.rows)
        if len(wanted) < len(made.messages):
            part = _picked(part, {id(message) for message in wanted})
        with self._lock:
            self._parts.append(part)

    def drop(self, messages: Iterable[Message]) -> None:
        """Drop the rows of these messages, if there are any."""
        gone = {id(message) for message in messages}
        with self._lock:
            for _ in range(len(self._parts)):
                part = self._parts.popleft()
                if not gone.isdisjoint(map(id, part[0])):
                    part = _picked(part, set(map(id, part[0])) - gone)
                if part[0]:
                    self._parts.append(part)

    def take(self, messages: list[Message]) -> pa.RecordBatch:
        """Return the rows of exactly these messages, which arrived in this order."""
        with self._lock:
            taken = list(self._taken(messages))
        return pa.concat_batches(
            self._rows(Columns(encoded_of(found))) if isinstance(found, list) else found
            for found in taken
        )

    def _taken(self, messages: list[Message]) -> Iterator[pa.RecordBatch | list[Message]]:
        """Yield rows, and lists of messages that have no rows."""
        position = 0
        while position < len(messages):
            # Messages are compared by identity.
            if not self._parts or self._parts[0][0][0] is not messages[position]:
                # A message was lost or redelivered, or is taken a second time.
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
        """Drop rows until the first one belongs to a message at `position` or later.

        Returns:
            The index of that message, or the number of messages if there are no such rows.
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
    """Return some messages of a part and a copy of their rows.

    A slice would keep the memory of the other rows.
    """
    held, rows = part
    places = [place for place, message in enumerate(held) if id(message) in ids]
    return [held[place] for place in places], rows.take(pa.array(places, pa.int64()))


def _same(held: list[Message], messages: list[Message], start: int) -> int:
    """Return how many of the first messages of `held` follow one another from `start` on."""
    if held == messages[start : start + len(held)]:
        return len(held)
    pairs = zip(held, messages[start:], strict=False)
    return sum(1 for _ in takewhile(lambda pair: pair[0] is pair[1], pairs))
