"""Start positions in a feed, as callers write them."""

from __future__ import annotations

from typing import Literal, TypeAlias

from pullstream_protocol.messages import feeds_pb2 as feeds

# Numbers have 63 bits.
_LARGEST = 2**63 - 1

# "tail": records that are appended from now on. A number: the sequence number of the last message
# that the reader has, 0 for none. A Position or a Cursor also has the epoch, which identifies the
# topic if it was deleted and created again.
Start: TypeAlias = "Literal['tail'] | int | feeds.Position | feeds.Cursor"


def position_of(start: Start, topic: str) -> feeds.Position:
    """Convert a start position in `topic` to its form on the wire.

    Raises:
        TypeError: `start` is not a position.
        ValueError: `start` is out of range, or is a Cursor of another topic.
    """
    if isinstance(start, feeds.Position):
        return start
    if isinstance(start, feeds.Cursor):
        if start.topic not in ("", topic):
            raise ValueError(
                f"the start position is a cursor of the topic {start.topic}; "
                f"it must be a cursor of {topic}"
            )
        return feeds.Position(after_seq=start.seq, epoch=start.epoch)
    if start == "tail":
        return feeds.Position(tail=True)
    if not isinstance(start, int) or isinstance(start, bool):
        raise TypeError(
            f"the start position is {start!r:.80}; "
            'it must be "tail", a number, a Position or a Cursor'
        )
    if not 0 <= start <= _LARGEST:
        raise ValueError(f"the start position is {start}; it must be between 0 and {_LARGEST}")
    return feeds.Position(after_seq=start)
