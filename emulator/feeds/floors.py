"""Up to where a feed has lost its records, and what a reader is told who comes too late."""

from __future__ import annotations

from protocol.messages import feeds_pb2 as feeds


class Floors:
    """The highest number that was lost for each reason; 0: none.

    start: what was published before there was a feed, or was lost with an earlier broker.
    cap: what left for room. ttl: for its age.
    source: what a router's source had lost before it was forwarded: numbers without a record.

    What was deleted on purpose has no floor: nobody is told of it.
    """

    __slots__ = ("cap", "source", "start", "ttl")

    def __init__(self, start: int = 0, *, cap: int = 0, ttl: int = 0, source: int = 0) -> None:
        self.start = start
        self.cap = cap
        self.ttl = ttl
        self.source = source

    @property
    def highest(self) -> int:
        """A reader that has this number, or a higher one, has lost nothing below."""
        return max(self.start, self.cap, self.ttl, self.source)

    def reason(self, after: int) -> feeds.GapReason:
        """Why the records that follow `after` are lost, some of which are."""
        by_cap, by_ttl, by_source = (f > after for f in (self.cap, self.ttl, self.source))
        if by_cap and by_ttl:
            return feeds.MIXED
        if by_cap:
            return feeds.CAP
        if by_ttl:
            return feeds.TTL
        return feeds.SOURCE_TRIM if by_source else feeds.FROM_SEQ_TOO_OLD
