"""Wait for a feed to grow."""

from __future__ import annotations

from collections.abc import Callable

from pullstream_protocol.errors import NotFound, RpcError

from .feed import Feed
from .listeners import Wake


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
