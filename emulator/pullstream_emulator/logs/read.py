"""One Read request: the records of a feed after a position."""

from __future__ import annotations

from collections.abc import Callable

from pullstream_emulator.engine.settings.durations import seconds_of
from pullstream_emulator.error_texts import too_small
from pullstream_protocol.errors import NotFound, RpcError
from pullstream_protocol.messages import encoded_pb2 as encoded
from pullstream_protocol.messages import feeds_pb2 as feeds

from .feed import Feed, Wake
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


class ReadWait:
    """One wait. `wake` is called once, when the feed has grown or the wait has ended.

    Args:
        feed: The feed.
        wake: See Wake.
        forget: Called with this object when the wait is over.

    Attributes:
        ended: Why the wait has ended: the topic was deleted, or the broker stops. None otherwise.
    """

    def __init__(self, feed: Feed, wake: Wake, forget: Callable[[ReadWait], None]) -> None:
        self.ended: RpcError | None = None
        self._feed = feed
        self._wake = wake
        self._forget = forget
        feed.listen(self._grew)

    def cancel(self) -> None:
        """Stop waiting; does nothing if the wait is over."""
        self._feed.ignore(self._grew)
        self._forget(self)

    def end(self, reason: RpcError) -> None:
        """End the wait with an error, and wake the reader."""
        self.ended = reason
        self.cancel()
        self._wake()

    def _grew(self) -> None:
        if self._feed.is_closed:
            self.end(NotFound(f"The topic {self._feed.name} was deleted."))
        else:
            self.cancel()
            self._wake()
