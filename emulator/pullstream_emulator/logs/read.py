"""One Read request: the records of a feed after a position."""

from __future__ import annotations

from pullstream_emulator.engine.settings.durations import seconds_of
from pullstream_emulator.error_texts import too_small
from pullstream_protocol.messages import encoded_pb2 as encoded
from pullstream_protocol.messages import feeds_pb2 as feeds

from .feed import Feed
from .reader_position import check_position, is_of_other_incarnation, position_of
from .selection import Limits, Selection

# Longest wait of a Read, in seconds.
MAX_WAIT = 30.0


def wait_of(request: feeds.ReadRequest) -> float:
    """Return how long a Read may wait for its first message, in seconds.

    Raises:
        InvalidArgument: The duration is negative.
    """
    seconds = seconds_of(request.wait)
    if seconds < 0:
        raise too_small("wait", f"{seconds}s", "0s")
    return min(seconds, MAX_WAIT)


class CheckedRead:
    """A validated request, which can be run on its feed.

    Raises:
        InvalidArgument: A field of the request is out of range.
    """

    def __init__(self, request: feeds.ReadRequest) -> None:
        wait_of(request)
        check_position(request.start)
        include_data = not request.HasField("include_data") or request.include_data
        self._start = request.start
        self._limits = Limits.clamped(request.max_messages, request.max_bytes)
        self._selection = Selection(
            request.start.filter, request.exclude_node, include_data=include_data
        )

    def answer(self, feed: Feed) -> encoded.EncodedReadResponse:
        """Return the records available now. The feed must be trimmed before."""
        position = position_of(self._start, feed)
        gap = (
            feed.recreated() if is_of_other_incarnation(position, feed) else feed.gap(position.seq)
        )
        after = position.seq if gap is None else gap.to_seq
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
