"""Where to begin in a feed, as callers write it."""

from __future__ import annotations

from typing import Literal, TypeAlias

from protocol.messages import feeds_pb2 as feeds

# "tail": what is appended from now on. A number: of the last message that the reader has, 0 for
# none. A Position or a Cursor says also in which life of the topic that was.
Start: TypeAlias = "Literal['tail'] | int | feeds.Position | feeds.Cursor"


def position_of(start: Start) -> feeds.Position:
    """The wire's form of a start.

    Raises:
        TypeError, ValueError: it is none.
    """
    if isinstance(start, feeds.Position):
        return start
    if isinstance(start, feeds.Cursor):
        return feeds.Position(after_seq=start.seq, epoch=start.epoch)
    if start == "tail":
        return feeds.Position(tail=True)
    if not isinstance(start, int) or isinstance(start, bool):
        raise TypeError(f'a start is "tail", a number, a Position or a Cursor, not {start!r:.80}')
    if start < 0:
        raise ValueError(f"a start is {start}; a number must not be negative")
    return feeds.Position(after_seq=start)
