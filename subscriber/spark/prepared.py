"""Rows that are made before they are asked for."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from itertools import takewhile

import pyarrow as pa

from subscriber.message import Message

from .rows import to_batch


class PreparedRows:
    """The rows of messages that arrived, in that order, until they are wanted.

    To make a row takes longer than all else that happens to a message. Done when a batch is asked
    for, the engine would wait for it; done when the messages arrive, it is while the engine works
    on the batch before.

    The subscription's worker adds, the session's thread takes; each step of theirs on the queue is
    a single one. Which messages are wanted is not decided here: rows are used if they are of the
    very messages that are asked for, and made anew if not. So it does no harm when a message was
    lost or has been delivered again since.

    Args:
        subscription: for the column of this name; None: there is none.
    """

    def __init__(self, subscription: str | None) -> None:
        self._subscription = subscription
        self._parts: deque[tuple[list[Message], pa.RecordBatch]] = deque()

    def add(self, messages: Sequence[Message]) -> None:
        """Messages arrived."""
        arrived = list(messages)
        if arrived:
            self._parts.append((arrived, self._make(arrived)))

    def take(self, messages: list[Message]) -> pa.RecordBatch:
        """The rows of `messages`, which arrived in this order, and of no others."""
        return pa.concat_batches(list(self._taken(messages)))

    def _taken(self, messages: list[Message]) -> Iterator[pa.RecordBatch]:
        wanted = set(map(id, messages))
        position = 0
        while position < len(messages):
            part = self._next_part(wanted)
            if part is None:
                yield self._make(messages[position:])
                return
            held, rows = part
            # By identity, as messages are compared.
            before = messages.index(held[0], position)
            if before > position:
                # Put back, say, after their rows had been taken.
                yield self._make(messages[position:before])
            count = _same(held, messages, before)
            yield rows.slice(0, count)
            # A redelivery stands where the first delivery stood, and its rows come later.
            wanted.difference_update(map(id, messages[position : before + count]))
            position = before + count
            if count < len(held):
                self._parts.appendleft((held[count:], rows.slice(count)))

    def _next_part(self, wanted: set[int]) -> tuple[list[Message], pa.RecordBatch] | None:
        """The first rows that are of wanted messages, if any are; what stands before is dropped."""
        while self._parts:
            held, rows = self._parts.popleft()
            for first, message in enumerate(held):
                if id(message) in wanted:
                    return held[first:], rows.slice(first)
        return None

    def _make(self, messages: Sequence[Message]) -> pa.RecordBatch:
        return to_batch([message.received for message in messages], self._subscription)


def _same(held: list[Message], messages: list[Message], start: int) -> int:
    """How many of the first of `held` stand in `messages` from `start` on."""
    if held == messages[start : start + len(held)]:
        return len(held)
    pairs = zip(held, messages[start:], strict=False)
    return sum(1 for _ in takewhile(lambda pair: pair[0] is pair[1], pairs))
