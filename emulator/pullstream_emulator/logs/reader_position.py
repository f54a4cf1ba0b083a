"""Position of a reader in a feed."""

from __future__ import annotations

from typing import NamedTuple

from pullstream_emulator.error_texts import too_small
from pullstream_protocol.messages import feeds_pb2 as feeds

from .feed import Feed


class ReaderPosition(NamedTuple):
    """A position in one incarnation of a topic: the reader has every record up to this number.

    Attributes:
        seq: The newest sequence number that the reader has.
        epoch: The epoch in which the number was assigned; 0 if it is not known.
    """

    seq: int
    epoch: int


def check_position(position: feeds.Position) -> None:
    """Refuse a negative sequence number."""
    if position.after_seq < 0:
        raise too_small("after_seq", position.after_seq, 0)


def position_of(position: feeds.Position, feed: Feed) -> ReaderPosition:
    """Return the number and epoch of a position; an unset position is before the oldest record."""
    if position.tail:
        return ReaderPosition(feed.head, feed.epoch)
    return ReaderPosition(position.after_seq, position.epoch)


def is_of_other_incarnation(position: ReaderPosition, feed: Feed) -> bool:
    """Return whether a position dates from before the topic was deleted and created again.

    Without an epoch this is certain only for numbers that the present topic has not assigned yet.
    """
    return position.epoch not in (0, feed.epoch) or position.seq > feed.head
