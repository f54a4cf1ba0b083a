"""What feeds tell of: for routers, which copy from one to another, and for storage."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from emulator.engine import Record

    from .feed import Feed


class FeedObserver:
    """Told of every change of a feed, in order, after it has happened.

    This one ignores all of it; another overrides what it cares for. It may append to other feeds:
    the one that tells is done with its own work.
    """

    def configured(self, feed: Feed) -> None:
        """A feed was made, or it or its topic given other settings."""

    def appended(self, feed: Feed, records: Sequence[Record]) -> None:
        """These were appended. Some may have left the window already, to make room."""

    def skipped(self, feed: Feed, first: int, last: int) -> None:
        """These numbers were given to what a router's source has lost."""

    def deleted(self, feed: Feed) -> None:
        """Records were taken out on purpose; `trimmed` comes next."""

    def trimmed(self, feed: Feed) -> None:
        """Records have left the window: floors have moved, and there may be room again."""

    def closed(self, feed: Feed) -> None:
        """Its topic was deleted."""
