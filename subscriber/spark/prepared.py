"""Rows that are made before they are asked for."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from itertools import takewhile

import pyarrow as pa

from subscriber.message import Message, encoded_of

from .columns import Columns
from .rows import to_batch
from .segment import ACK_ID


class PreparedRows:
    """The rows of messages that arrived, as segments have them, until they are wanted.

    To make a row takes longer than all else that happens to a message. Done when a batch is asked
    for, the engine would wait for it; done when the messages arrive, it is while the engine works
    on the batch before.

    The subscription's worker adds, one other thread at a time takes; each step of theirs on the
    queue is a single one. Which messages are wanted is not decided here: rows are used if they are
    of the very messages that are asked for, and made anew if not. So it does no harm when a message
    was lost or has been delivered again since.

    Args:
        subscription: for the column of this name; None: there is none.
    """

    def __init__(self, subscription: str | None) -> None:
        self._subscription = subscription
        self._parts: deque[tuple[list[Message], pa.RecordBatch]] = deque()

    def add(self, messages: Sequence[Message]) -> list[str]:
        """Messages arrived; returns their ids."""
        arrived = list(messages)
        if not arrived:
            return []
        columns = Columns(encoded_of(arrived))
        self._parts.append((arrived, self._rows(columns)))
        return columns.message_ids

    def take(self, messages: list[Message]) -> pa.RecordBatch:
        """The rows of `messages`, which arrived in this order, and of no others."""
        return pa.concat_batches(list(self._taken(messages)))

    def _taken(self, messages: list[Message]) -> Iterator[pa.RecordBatch]:
        position = 0
        while position < len(messages):
            # By identity, as messages are compared.
            if not self._parts or self._parts[0][0][0] is not messages[position]:
                # Something was lost or delivered again, or is taken a second time.
                before = self._drop_unwanted(messages, position)
                if before > position:
                    yield self._rows(Columns(encoded_of(messages[position:before])))
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


def _same(held: list[Message], messages: list[Message], start: int) -> int:
    """How many of the first of `held` stand in `messages` from `start` on."""
    if held == messages[start : start + len(held)]:
        return len(held)
    pairs = zip(held, messages[start:], strict=False)
    return sum(1 for _ in takewhile(lambda pair: pair[0] is pair[1], pairs))
