"""What may lie unread while the reader is paused: its leases run from when the server sent it."""

from __future__ import annotations


class Unread:
    """How old the leases of what is read may be.

    A server has its own count of what is outstanding on a stream, and sends no more than flow
    control's window. But it begins anew with each stream, while we still hold what came by the last
    one:

        1. 800 messages of a window of 1,000 are held when the stream breaks, and is opened again;
        2. the server sends 1,000; 200 are read, then the reader is paused, and 800 lie unread;
        3. they are read minutes later, when the leases of some may be about to end.

    So a window of messages from the beginning of a pause on may have been sent when it began. Used
    by the reader's thread.

    Args:
        window: how many messages the server may have sent.
    """

    def __init__(self, window: int) -> None:
        self._window = window
        self._left = 0
        self._since = 0.0

    def paused(self, now: float) -> None:
        """Nothing is read from now on; what lies unread since an earlier pause still does."""
        if self._left <= 0:
            self._since = now
        self._left = self._window

    def age(self, messages: int, now: float) -> int:
        """So many messages were read; returns for how many whole seconds they may have lain."""
        if self._left <= 0:
            return 0
        self._left -= messages
        return int(now - self._since)
