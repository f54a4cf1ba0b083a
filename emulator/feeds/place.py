"""Where a reader is in a feed."""

from __future__ import annotations

from typing import NamedTuple

from emulator.refusals import too_small
from protocol.messages import feeds_pb2 as feeds

from .feed import Feed


class Place(NamedTuple):
    """A position in one life of a topic: its reader has everything up to this number."""

    seq: int
    epoch: int


def check_position(position: feeds.Position) -> None:
    """Refuse a number that none can have."""
    if position.after_seq < 0:
        raise too_small("after_seq", position.after_seq, 0)


def place_of(position: feeds.Position, feed: Feed) -> Place:
    """The number and the epoch that a position means now; without a start it is the oldest."""
    if position.tail:
        return Place(feed.head, feed.epoch)
    return Place(position.after_seq, position.epoch)


def is_of_another_life(place: Place, feed: Feed) -> bool:
    """Whether a position was learned before the topic was deleted and made again.

    Without an epoch that is certain only of a number that this life has not given yet.
    """
    return place.epoch not in (0, feed.epoch) or place.seq > feed.head
