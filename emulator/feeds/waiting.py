"""Somebody who waits until a feed has more."""

from __future__ import annotations

from collections.abc import Callable

from protocol.errors import NotFound, RpcError

from .feed import Feed
from .listeners import Wake


class Waiting:
    """One wait. `wake` is called once: the feed has grown, or `ended` says why it will not.

    ended: the topic was deleted, or the broker stops; None otherwise.
    """

    def __init__(self, feed: Feed, wake: Wake, forget: Callable[[Waiting], None]) -> None:
        self.ended: RpcError | None = None
        self._feed = feed
        self._wake = wake
        self._forget = forget
        feed.listen(self._grew)

    def cancel(self) -> None:
        """Wait no more; also after it is over."""
        self._feed.ignore(self._grew)
        self._forget(self)

    def end(self, reason: RpcError) -> None:
        self.ended = reason
        self.cancel()
        self._wake()

    def _grew(self) -> None:
        if self._feed.is_closed:
            self.end(NotFound(f"The topic {self._feed.name} was deleted."))
        else:
            self.cancel()
            self._wake()
