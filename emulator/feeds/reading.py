"""One Read: what a feed has behind a position."""

from __future__ import annotations

from emulator.engine.durations import seconds_of
from emulator.refusals import too_small
from protocol.messages import encoded_pb2 as encoded
from protocol.messages import feeds_pb2 as feeds

from .feed import Feed
from .place import check_position, is_of_another_life, place_of
from .selection import Limits, Selection

# Longest wait of a Read, in seconds.
MAX_WAIT = 30.0


def wait_of(request: feeds.ReadRequest) -> float:
    """How long a Read may wait for its first message, in seconds.

    Raises:
        InvalidArgument: it is negative.
    """
    seconds = seconds_of(request.wait)
    if seconds < 0:
        raise too_small("wait", f"{seconds}s", "0s")
    return min(seconds, MAX_WAIT)


class Reading:
    """A request that has been checked, and can be asked of its feed.

    Raises:
        InvalidArgument: something of it is out of its bounds.
    """

    def __init__(self, request: feeds.ReadRequest) -> None:
        wait_of(request)
        check_position(request.start)
        include_data = not request.HasField("include_data") or request.include_data
        self._start = request.start
        self._limits = Limits.of(request.max_messages, request.max_bytes)
        self._selection = Selection(
            request.start.filter, request.exclude_node, include_data=include_data
        )

    def of(self, feed: Feed) -> encoded.EncodedReadResponse:
        """What there is now. The feed must have let go of what is too old."""
        place = place_of(self._start, feed)
        gap = feed.recreated() if is_of_another_life(place, feed) else feed.gap(place.seq)
        after = place.seq if gap is None else gap.to_seq
        batch = self._selection.read(feed, after, self._limits)
        return encoded.EncodedReadResponse(
            messages=batch.messages,
            next_seq=batch.next_seq,
            head_seq=feed.head,
            earliest_seq=feed.earliest,
            caught_up=batch.next_seq == feed.head,
            gap=gap,
            epoch=feed.epoch,
        )
