"""Where to begin in a feed, as callers write it."""

from __future__ import annotations

from typing import Literal, TypeAlias

from protocol.messages import feeds_pb2 as feeds

# Numbers have 63 bits.
_LARGEST = 2**63 - 1

# "tail": what is appended from now on. A number: of the last message that the reader has, 0 for
# none. A Position or a Cursor says also in which life of the topic that was.
Start: TypeAlias = "Literal['tail'] | int | feeds.Position | feeds.Cursor"


def position_of(start: Start, topic: str) -> feeds.Position:
    """The wire's form of a start in `topic`.

    Raises:
        TypeError, ValueError: it is none, or a Cursor of another topic.
    """
    if isinstance(start, feeds.Position):
        return start
    if isinstance(start, feeds.Cursor):
        if start.topic not in ("", topic):
            raise ValueError(f"a start is a cursor of {start.topic}, not of {topic}")
        return feeds.Position(after_seq=start.seq, epoch=start.epoch)
    if start == "tail":
        return feeds.Position(tail=True)
    if not isinstance(start, int) or isinstance(start, bool):
        raise TypeError(f'a start is "tail", a number, a Position or a Cursor, not {start!r:.80}')
    if not 0 <= start <= _LARGEST:
        raise ValueError(f"a start is {start}; a number must be from 0 to {_LARGEST}")
    return feeds.Position(after_seq=start)
